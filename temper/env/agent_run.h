// One episode of an agent (`environment.openai`): a program that asks the policy by OpenAI's API.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/process/process.h"
#include "temper/process/scratch.h"

namespace temper::env {

class AgentRun {
 public:
  // Starts the program in a process group and with a TMPDIR of its own, with these variables
  // ("NAME=value"), and gives it the row as a line of JSON, then the end of its input. Throws
  // RunError where it cannot be started.
  AgentRun(const EnvironmentSection& section, const Json& row, std::vector<std::string> variables);

  // Moves bytes, without waiting. True once the program has ended.
  bool advance();
  // After its end: how it failed; nothing where its exit status is 0.
  std::optional<Failure> find_failure() const;
  // The reward in the last line of its output, {"reward": number}; nothing where the line is none
  // of that kind. A reward that is no finite number is a failure.
  struct Reward {
    std::optional<double> value;
    std::optional<Failure> failure;
  };
  Reward read_reward() const;
  Failure failure(Failure::Kind kind, const std::string& how) const;

 private:
  process::ScratchDirectory scratch_;
  process::Process process_;
  std::string unsent_, output_, errors_;
  bool reads_ = true;  // its output has not ended
};

}  // namespace temper::env
