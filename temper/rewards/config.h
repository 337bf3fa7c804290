// One entry of the config list `rewards`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config.h"

namespace temper::rewards {

// A built-in reward by name, or a command.
struct RewardSection {
  enum class OnFailure { kZero, kDrop, kStop };
  std::string name;  // of a command: what its metrics are called; empty: the program's name
  double weight = 1;
  std::string field = "answer";        // of the row: what the completion is compared with
  std::optional<std::string> pattern;  // of regex
  std::vector<std::string> command;    // empty: a built-in
  double timeout_seconds = 10;
  double start_timeout_seconds = 30;
  int64_t workers = 2;
  std::optional<int64_t> memory_bytes;
  OnFailure on_failure = OnFailure::kZero;
  void fields(Fields& f);
  // What metrics call it: its name, or that of its program without the folders.
  std::string label() const;
};

}  // namespace temper::rewards
