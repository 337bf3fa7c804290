#include "temper/rl/run.h"

#include "temper/rl/ahead.h"
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
  dist::Group& group = *mesh.rows;
  std::shared_ptr<dist::Group> sampling_group;  // of the thread that samples ahead; outlives it
  std::unique_ptr<RolloutSource> source;
  const int64_t vocabulary = roles.policy.model->vocab_size;
  const bool whole = mesh.model->size() == 1;
  config.require(
      whole || !config.rollout.server.used(), "rollout.server",
      "servers load whole weights, but each rank holds only a shard; expected mesh.fsdp 1 "
      "and mesh.tensor 1 with it");
  config.require(
      whole || config.rl.max_staleness == 0, "rl.max_staleness",
      "ranks with sharded weights cannot sample while they train; expected mesh.fsdp 1 and "
      "mesh.tensor 1 with it");
  config.require(
      mesh.tensor->size() == 1 || !config.environment.any(), "environment",
      "tensor-parallel ranks must sample the same turns at the same time, which episodes do "
      "not guarantee; expected mesh.tensor 1 with it");
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
