// The disk space of a run's rollout files.
#pragma once

#include "temper/check/memory/run_shape.h"
#include "temper/data/loader.h"
#include "temper/rl/config.h"
#include "temper/train/policy.h"

namespace temper::checks {

// The space after so many updates, measured on lines made up of the run's own prompts, whose
// completions have rollout.max_new_tokens tokens: an upper bound where completions are shorter.
DiskShape rollout_disk(const rl::RlConfig& config, const train::Policy& policy,
                       const data::RowOrder& order, int64_t updates);

}  // namespace temper::checks
