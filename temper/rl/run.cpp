#include "temper/rl/run.h"

#include "temper/rl/ahead.h"
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
  std::shared_ptr<dist::Group> sampling_group;  // of the thread that samples ahead
  const int64_t vocabulary = roles.policy.model->vocab_size;
  std::unique_ptr<Sampler> sampler = make_sampler(config, roles.policy, group);
  if (config.rl.replay) {
    source = std::make_unique<ReplayedSource>(config, vocabulary);
  } else if (config.rl.max_staleness > 0) {
    sampling_group = group.another("sampling ahead");
    auto messages = std::make_unique<KeptMessages>(directory);
    auto inner = std::make_unique<SampledSource>(config, roles.policy, *sampling_group, *messages,
                                                 std::move(sampler));
    source =
        std::make_unique<AheadSource>(config, std::move(inner), std::move(messages), vocabulary);
  } else {
    source =
        std::make_unique<SampledSource>(config, roles.policy, group, directory, std::move(sampler));
  }
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
