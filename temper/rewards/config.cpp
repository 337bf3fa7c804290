#include "temper/rewards/config.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rewards::RewardSection::OnFailure> = {"zero", "drop",
                                                                             "stop"};

}  // namespace temper

namespace temper::rewards {

void RewardSection::fields(Fields& f) {
  f.add("name", name, "a built-in reward; of a command: what its metrics are called");
  f.add("weight", weight, "factor of this reward in the sum");
  f.add("field", field, "the row's field that gsm8k, math and exact compare with");
  f.add("pattern", pattern, "what regex looks for");
  f.add("command", command,
        "a program and its arguments: a row of JSON in, a line with a number out");
  f.add("timeout_seconds", timeout_seconds, "for one answer of the command", above(0));
  f.add("start_timeout_seconds", start_timeout_seconds, "until a worker of the command has started",
        above(0));
  f.add("workers", workers, "processes of the command", at_least(1));
  f.add("memory_bytes", memory_bytes, "address space of a worker; null: unlimited", at_least(1));
  f.add("on_failure", on_failure, "what a timeout, a crash or a malformed answer does");
}
std::string RewardSection::label() const {
  if (!name.empty() || command.empty()) return name;
  return command.front().substr(command.front().rfind('/') + 1);
}

}  // namespace temper::rewards
