// The critic that a run of PPO trains beside its policy.
#pragma once

#include "temper/rl/algorithms/ppo_config.h"
#include "temper/train/roles.h"

namespace temper::rl {

// Sets roles.critic as the section `ppo` says, with the trainable "critic": the policy's optimizer
// settings at its own learning rate, and the directory `critic/`. Keys that choose parameters by
// name (train.freeze, optimizer.groups) count where they match one. The policy waits for
// ppo.critic_warmup_steps. Throws ConfigError.
void load_critic(const PpoConfig& config, train::Roles& roles);
// Does the same with a critic that a program made itself.
void add_critic(const PpoConfig& config, train::Roles& roles,
                std::unique_ptr<train::Critic> critic);

}  // namespace temper::rl
