// The training verbs, and what they have in common with what looks at their configs.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/distill/config.h"
#include "temper/preference/config.h"
#include "temper/rl/algorithms/ppo_config.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {

// The type of a verb's config, for std::visit.
using ConfigType =
    std::variant<std::type_identity<train::SftConfig>, std::type_identity<distill::DistillConfig>,
                 std::type_identity<preference::PreferenceConfig>, std::type_identity<rl::RlConfig>,
                 std::type_identity<rl::PpoConfig>>;

struct TrainingVerb {
  const char* name;
  std::string help;  // one line
  Verb::Run run;
  ConfigType config;
  // The sections of its config that not every verb has.
  std::vector<std::string> sections = {};
};
// The only list of them: help, `temper check`, completion and what a config file may hold follow
// it.
const std::vector<TrainingVerb>& training_verbs();
// Null for a word that is no training verb.
const TrainingVerb* find_training_verb(const std::string& name);

// Looks at a training verb's run before it starts.
std::unique_ptr<Command> check_command();

}  // namespace temper::cli
