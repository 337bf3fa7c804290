// A verb's run: its task under a trainer with the hooks that the config asks for.
#pragma once

#include "temper/dist/mesh.h"
#include "temper/rewards/reward.h"
#include "temper/train/config.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/run_directory.h"
#include "temper/train/task.h"
#include "temper/train/trainer.h"

namespace temper::train {

// make_reward: makes those of train.eval_rewards.
RunOutcome run_task(RunConfig& config, Roles& roles, const dist::Mesh& mesh,
                    RunDirectory& directory, Task& task,
                    const rewards::RewardSet::Make& make_reward = rewards::make_reward);

}  // namespace temper::train
