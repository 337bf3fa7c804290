// The training verbs, and what they have in common with what looks at their configs.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/distill/config.h"
#include "temper/preference/config.h"
#include "temper/rl/algorithms/ppo.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {

// How a verb trains as its config says.
template <class Config>
struct RunOf {
  using type = Config;
  train::RunOutcome (*run)(Config& config, const train::RunHost& host);
  // What the verb does instead where this flag is given; null: there is none.
  const char* flag = nullptr;
  void (*instead)(Config& config, std::ostream& out) = nullptr;
};
using AnyRun =
    std::variant<RunOf<train::SftConfig>, RunOf<distill::DistillConfig>,
                 RunOf<preference::PreferenceConfig>, RunOf<rl::RlConfig>, RunOf<rl::PpoConfig>>;

struct TrainingVerb {
  const char* name;
  std::string help;  // one line
  AnyRun config;     // for std::visit
  // The sections of its config that not every verb has.
  std::vector<std::string> sections;
  std::string about;  // what `temper VERB --help` says above the keys
  // Whether LoRA runs of a sweep may share a process (train/joint).
  bool shares_passes = false;
};
// The only list of them: help, `temper check`, completion and what a config file may hold follow
// it.
const std::vector<TrainingVerb>& training_verbs();
// Runs `temper VERB arguments`. Gives the exit status.
int run_training(const TrainingVerb& verb, const Arguments& arguments);
// The run of `temper VERB arguments` on one rank, as a part of this process. Its errors are thrown.
train::RunOutcome run_part(const TrainingVerb& verb, const Arguments& arguments,
                           const train::RunHost& host);
// Null for a word that is no training verb.
const TrainingVerb* find_training_verb(const std::string& name);

// Looks at a training verb's run before it starts.
std::unique_ptr<Command> check_command();

}  // namespace temper::cli
