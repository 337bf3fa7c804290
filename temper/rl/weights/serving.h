// A rank that has roles of its own in a run of reinforcement learning.
#pragma once

#include "temper/rl/config.h"
#include "temper/train/ranks.h"
#include "temper/train/trainer.h"

namespace temper::rl {

// Samples, computes the reference model's log-probabilities, or both, until the run ends. Throws
// ConfigError, DataError, RunError.
train::RunOutcome serve_run(RlConfig& config, dist::World& world);

}  // namespace temper::rl
