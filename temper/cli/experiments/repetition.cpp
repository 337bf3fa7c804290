#include "temper/cli/experiments/repetition.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"

namespace temper::cli {

static constexpr const char* kRepetition = "TEMPER_REPETITION";

train::RunHost::After Repetition::after(int64_t step) const {
  using After = train::RunHost::After;
  const bool ends = step >= end;
  if (ends && finishes) return After::kFinish;
  if (saves.contains(step)) return ends ? After::kSaveAndEnd : After::kSave;
  return ends ? After::kEnd : After::kGoOn;
}

void Repetition::tell(const std::optional<Repetition>& what) {
  if (!what) {
    ::unsetenv(kRepetition);
    return;
  }
  const Json value{{"saves", what->saves},       {"end", what->end},
                   {"finishes", what->finishes}, {"is_silent", what->is_silent},
                   {"tensors", what->tensors},   {"tensors_of", what->tensors_of}};
  ::setenv(kRepetition, dump_json(value).c_str(), 1);
}

std::optional<Repetition> Repetition::told() {
  const char* text = std::getenv(kRepetition);
  if (!text) return {};
  try {
    const Json value = parse_json(text, kRepetition);
    return Repetition{
        value.at("saves").get<std::set<int64_t>>(), value.at("end").get<int64_t>(),
        value.at("finishes").get<bool>(),           value.at("is_silent").get<bool>(),
        value.at("tensors").get<std::string>(),     value.at("tensors_of").get<int64_t>()};
  } catch (const std::exception& e) {
    throw ConfigError(str("environment variable ", kRepetition, ": ", e.what()));
  }
}

}  // namespace temper::cli
