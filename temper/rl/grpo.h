// Reinforcement learning with verifiable rewards: the loop of every algorithm in algorithm.h.
#pragma once

#include "temper/train/run.h"

namespace temper::rl {

// Rollout, rewards, advantages, updates, until the steps or the data end; or the updates of a
// rollouts file (rl.replay). A rollout batch makes rl.minibatches x rl.iterations steps;
// checkpoints stand between rollout batches. Throws ConfigError, DataError, RunError.
train::RunOutcome run_grpo(const RunConfig& config, const train::RunHost& host);

}  // namespace temper::rl
