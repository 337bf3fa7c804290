#include "temper/train/run_task.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "temper/train/hooks.h"
#include "temper/train/offload/directory.h"
#include "temper/train/run/opening.h"
#include "temper/train/run/reward_evaluation.h"
#include "temper/train/run/weights_check.h"

namespace temper::train {

RunOutcome run_task(RunConfig& config, Roles& roles, const dist::Mesh& mesh,
                    RunDirectory& directory, Task& task,
                    const rewards::RewardSet::Make& make_reward) {
  std::vector<std::unique_ptr<Hook>> hooks = configured_hooks(config.train);
  if (!config.train.eval_rewards.empty())
    hooks.push_back(
        std::make_unique<RewardEvaluation>(config, roles.policy, mesh, directory, make_reward));
  hooks.insert(hooks.begin(), opening(config, roles, mesh, task));
  // Before hooks that keep weights.
  if (mesh.world->size() > 1)
    hooks.insert(hooks.begin(), weights_check(config.mesh.check_weights_every, roles, mesh));
  TrainSection section = config.train;
  section.offload_dir = offload_directory(config);
  Trainer trainer(std::move(section), static_cast<uint64_t>(config.seed), roles, mesh, task,
                  std::move(hooks));
  return trainer.run(directory);
}

}  // namespace temper::train
