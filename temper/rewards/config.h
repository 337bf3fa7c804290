// One entry of the config list `rewards`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/base/config.h"
#include "temper/process/limits.h"

namespace temper::rewards {

// A built-in reward, a command or a reward model.
struct RewardSection {
  enum class OnFailure { kZero, kDrop, kStop };
  std::string name;    // what its metrics are called; empty: as the reward or the program
  std::string reward;  // the built-in reward; empty: `name` says it
  double weight = 1;
  std::string field = "answer";        // of the row: what the completion is compared with
  std::optional<std::string> pattern;  // of regex
  std::vector<std::string> command;    // empty: a built-in
  std::optional<std::string> model;    // directory of a reward model: a built-in called `model`
  double timeout_seconds = 10;
  double start_timeout_seconds = 30;
  int64_t workers = 2;
  process::Limits limits;  // of a worker
  OnFailure on_failure = OnFailure::kZero;
  void fields(Fields& f);
  // What metrics call it.
  std::string label() const;
};

// What is wrong with a list of rewards: an entry without a name, two of one name, a command that
// names a built-in reward too. Empty: nothing.
std::string find_problem(std::span<const RewardSection> rewards);

}  // namespace temper::rewards
