#include "temper/rl/run.h"

#include "temper/rl/critic.h"
#include "temper/rl/replayed.h"
#include "temper/rl/sampled.h"
#include "temper/rl/task.h"
#include "temper/train/ranks.h"

namespace temper::rl {
namespace {

train::RunOutcome run(RlConfig& config, train::Roles& roles, const dist::Mesh& mesh,
                      const train::RunHost& host) {
  train::RunDirectory directory(config, host, *mesh.world);
  std::unique_ptr<RolloutSource> source;
  if (config.rl.replay)
    source = std::make_unique<ReplayedSource>(config, roles.policy.model->vocab_size);
  else
    source = std::make_unique<SampledSource>(config, roles.policy, *mesh.rows, directory);
  RlTask task(config, roles, *mesh.rows, *source, directory, config.output_dir);
  return train::run_task(config, roles, mesh, directory, task);
}

}  // namespace

train::RunOutcome run_rl(RlConfig& config, const train::RunHost& host) {
  config.resolve("grpo");
  const dist::Mesh mesh = train::join_mesh(config, host);
  train::Roles roles(config, mesh);
  return run(config, roles, mesh, host);
}

train::RunOutcome run_ppo(PpoConfig& config, const train::RunHost& host) {
  config.resolve("ppo");
  const dist::Mesh mesh = train::join_mesh(config, host);
  train::Roles roles(config, mesh);
  load_critic(config, roles);
  return run(config, roles, mesh, host);
}

}  // namespace temper::rl
