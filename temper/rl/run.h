// A run of reinforcement learning from its config.
#pragma once

#include "temper/rl/algorithms/ppo.h"
#include "temper/rl/scalar_directory.h"
#include "temper/train/trainer.h"

namespace temper::rl {

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_rl(RlConfig& config, const train::RunHost& host);
// The critic that ppo.critic names. Throws ConfigError where it does not read the policy's tokens.
ScalarPlace critic_place(const PpoConfig& config, const train::Policy& policy);
// Trains a policy as run_rl does, with a critic that trains beside the policy and is left in
// `critic/`.
train::RunOutcome run_ppo(PpoConfig& config, const train::RunHost& host);

}  // namespace temper::rl
