#include "temper/rl/run.h"

#include "temper/rl/critic.h"
#include "temper/rl/replayed.h"
#include "temper/rl/sampled.h"
#include "temper/rl/task.h"

namespace temper::rl {
namespace {

train::RunOutcome run(RlConfig& config, train::Roles& roles, dist::Group& group,
                      const train::RunHost& host) {
  train::RunDirectory directory(config, host, group);
  std::unique_ptr<RolloutSource> source;
  if (config.rl.replay)
    source = std::make_unique<ReplayedSource>(config, roles.policy.model->vocab_size);
  else
    source = std::make_unique<SampledSource>(config, roles.policy, group, directory);
  RlTask task(config, roles, group, *source, directory, config.output_dir);
  return train::run_task(config, roles, group, directory, task);
}

}  // namespace

train::RunOutcome run_rl(RlConfig& config, const train::RunHost& host) {
  config.resolve("grpo");
  const std::shared_ptr<dist::Group> group = dist::Group::from_environment(host.stop);
  train::Roles roles(config);
  return run(config, roles, *group, host);
}

train::RunOutcome run_ppo(PpoConfig& config, const train::RunHost& host) {
  config.resolve("ppo");
  const std::shared_ptr<dist::Group> group = dist::Group::from_environment(host.stop);
  train::Roles roles(config);
  load_critic(config, roles);
  return run(config, roles, *group, host);
}

}  // namespace temper::rl
