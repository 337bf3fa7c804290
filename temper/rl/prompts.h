// How a run of reinforcement learning reads its prompts.
#pragma once

#include "temper/data/prompt_row.h"
#include "temper/rl/config.h"
#include "temper/train/policy.h"

namespace temper::rl {

data::PromptFormat prompt_format(const RlConfig& config, const train::Policy& policy);

}  // namespace temper::rl
