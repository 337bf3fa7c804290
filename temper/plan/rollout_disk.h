// How much the rollout files of a run take.
#pragma once

#include "temper/data/loader.h"
#include "temper/plan/run_shape.h"
#include "temper/rl/config.h"
#include "temper/train/policy.h"

namespace temper::plan {

// Of so many updates, measured on lines that are made up of the run's own prompts: completions of
// rollout.max_new_tokens in the words of the prompts, so that shorter ones take less.
DiskShape rollout_disk(const rl::RlConfig& config, const train::Policy& policy,
                       const data::RowOrder& order, int64_t updates);

}  // namespace temper::plan
