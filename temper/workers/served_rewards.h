// The role `reward` on ranks of its own: both sides, the ranks that ask and those that answer.
#pragma once

#include <memory>

#include "temper/rewards/reward.h"
#include "temper/workers/role_ranks.h"

namespace temper::workers {

// How a run with the role makes its rewards: those that are models ask the ranks that have the
// role, and give their verdicts; others are made here. When the last of the ranks is gone this
// process loads the model. evaluates: they are those of train.eval_rewards. role_ranks outlives
// what it makes.
rewards::RewardSet::Make served_rewards(RoleRanks& role_ranks, bool evaluates = false);

// The run of a rank with the role: loads the models among the rewards, and among those of
// train.eval_rewards, and answers for them until the run ends. Throws ConfigError, RunError.
train::RunOutcome serve_rewards(train::RunConfig& config,
                                std::span<const rewards::RewardSection> rewards,
                                dist::World& world);

}  // namespace temper::workers
