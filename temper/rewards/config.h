// One entry of the config list `rewards`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/process/limits.h"

namespace temper::rewards {

// A language model that judges by an answer in words (judge.h).
struct JudgeSection {
  std::optional<std::string> url, model;  // a server's, or a model directory: one of them
  std::string api_key_env;                // of the server; empty: none
  std::string prompt;                     // the question
  std::string pattern = R"([-+]?\d+(?:\.\d+)?)";
  double scale = 1;
  int64_t max_new_tokens = 256;
  void fields(Fields& f);
  bool any() const { return url || model || !prompt.empty(); }
};

// A built-in reward, a command, a reward model or a judge.
struct RewardSection {
  enum class OnFailure { kZero, kDrop, kStop };
  std::string name;    // name of its metrics; empty: the reward's or the program's name
  std::string reward;  // name of the built-in reward; empty: `name`
  double weight = 1;
  std::string field = "answer";        // the row's field that the completion is compared with
  std::optional<std::string> pattern;  // the regular expression of the reward `regex`
  std::vector<std::string> command;    // a program and its arguments; empty: a built-in reward
  std::optional<std::string> model;    // directory of a reward model, for the built-in `model`
  JudgeSection judge;
  double timeout_seconds = 10;
  double start_timeout_seconds = 30;
  int64_t workers = 2;
  process::Limits limits;  // resource limits of a worker process
  OnFailure on_failure = OnFailure::kZero;
  // Whether a program that always dies, or a judge's server that does not answer, ends the run:
  // unless the config says what a failure is.
  bool ends_where_dead = true;
  void fields(Fields& f);
  // Whether it is a model that this process has: a reward model, or a judge's.
  bool is_model() const { return model || judge.model; }
  // The name of its metrics.
  std::string label() const;
};

// The problem with a list of rewards: an entry without a name, two of one name, a command that
// names a built-in reward too. Empty: none.
std::string find_problem(std::span<const RewardSection> rewards);

// Sets ends_where_dead by what the user wrote of the list: a YAML list, a lone entry, or null.
void note_written(const YamlNode* written, std::span<RewardSection> rewards);

}  // namespace temper::rewards
