#include "temper/rl/run.h"

#include "temper/rl/critic.h"
#include "temper/rl/rollout/async_source.h"
#include "temper/rl/rollout/replay_source.h"
#include "temper/rl/rollout/sync_source.h"
#include "temper/rl/task.h"
#include "temper/train/ranks.h"
#include "temper/train/roles.h"
#include "temper/workers/model_worker.h"
#include "temper/workers/role_ranks.h"

namespace temper::rl {
namespace {

// The reference on ranks of its own, and in this process where they are gone: for an adapter that
// is trained on, a copy of its start.
std::unique_ptr<workers::ServedReference> served_reference(const RlConfig& config,
                                                           train::Roles& roles,
                                                           const dist::Mesh& mesh,
                                                           workers::RoleRanks& role_ranks,
                                                           train::Messages& messages) {
  auto local = std::make_shared<std::unique_ptr<train::Frozen>>();
  if (roles.policy.lora) *local = train::frozen_start(roles.policy, config);
  return std::make_unique<workers::ServedReference>(
      role_ranks, *mesh.data_parallel, messages, [local, &roles, &config] {
        return *local ? std::move(*local) : train::frozen_start(roles.policy, config);
      });
}

// Asynchronous rollout has collectives and messages of its own.
struct Ahead {
  std::shared_ptr<dist::Group> group;
  std::unique_ptr<KeptMessages> messages;
};

train::RunOutcome run(RlConfig& config, train::Roles& roles, const dist::Mesh& mesh,
                      workers::RoleRanks* role_ranks, const train::RunHost& host) {
  train::RunDirectory directory(config, host, mesh);
  dist::Group& group = *mesh.data_parallel;
  std::unique_ptr<ReferenceWorker> reference_worker;
  if (role_ranks && !config.roles.reference.empty()) {
    auto served = served_reference(config, roles, mesh, *role_ranks, directory);
    if (!config.rl.replay)
      reference_worker = std::make_unique<ReferenceWorker>(
          *served, config.train.micro_batch_tokens, config.rollout.sampling.temperature,
          std::min(workers::kMostScored, config.roles.leaders(config.roles.reference).size() + 1),
          static_cast<size_t>(config.train.max_inflight.value_or(ReferenceWorker::kMostWaiting)));
    roles.reference = std::move(served);
  }
  const bool samples_ahead = config.rl.max_staleness > 0;
  Ahead ahead;  // outlives the source
  std::unique_ptr<RolloutSource> source;
  const int64_t vocabulary = roles.policy.model->vocab_size;
  if (samples_ahead)
    ahead = {group.clone_for_thread("sampling ahead"), std::make_unique<KeptMessages>(directory)};
  train::Messages& messages =
      samples_ahead ? *ahead.messages : static_cast<train::Messages&>(directory);
  if (config.rl.replay) {
    source = std::make_unique<ReplaySource>(config, vocabulary, messages);
  } else {
    std::unique_ptr<BehaviorPolicy> behavior =
        make_behavior_policy(config, roles.policy, mesh, role_ranks, messages, host.stop);
    auto sampled =
        std::make_unique<SyncSource>(config, roles.policy, samples_ahead ? *ahead.group : group,
                                     messages, std::move(behavior), std::move(reference_worker));
    if (samples_ahead)
      source = std::make_unique<AsyncSource>(config, std::move(sampled), std::move(ahead.messages),
                                             vocabulary);
    else
      source = std::move(sampled);
  }
  RlTask task(config, roles, group, *source, directory, config.output_dir);
  return train::run_task(config, roles, mesh, directory, task);
}

// A rank that has roles of its own: samples, computes the reference model's log-probabilities, or
// both, until the run ends.
train::RunOutcome serve_run(RlConfig& config, dist::World& world) {
  // The ranks that train learn its address before it has loaded anything.
  workers::RankServer server(world, config.training_ranks(world.size()).size());
  const dist::Mesh mesh = world.role_mesh(config.roles);
  train::Policy policy = train::load_policy(config, mesh);
  std::unique_ptr<workers::Scoring> scoring;
  std::unique_ptr<workers::Sampling> sampling;
  if (config.roles.scores(world.rank()))
    scoring = std::make_unique<workers::Scoring>(train::frozen_start(policy, config));
  if (config.roles.samples(world.rank()))
    sampling = std::make_unique<workers::Sampling>(policy, config.rollout.options(config.seed),
                                                   config.rollout.engine_options(),
                                                   config.rl.max_staleness);
  else if (!policy.lora)
    policy.model = nullptr;  // the reference is a model of its own
  workers::ModelWorker worker(mesh.tensor, std::move(sampling), std::move(scoring));
  return workers::serve(server, worker);
}

// The run of a rank, whatever its role. `load` adds models to those of a rank that trains.
train::RunOutcome run_rank(RlConfig& config, const train::RunHost& host,
                           const std::function<void(train::Roles&)>& load) {
  train::RunRanks ranks = train::join_ranks(config, host);
  if (!ranks.trains) return serve_run(config, *ranks.world);
  const std::unique_ptr<workers::RoleRanks> role_ranks = workers::find_role_ranks(config, ranks);
  train::Roles roles(config, ranks.mesh);
  load(roles);
  const train::RunOutcome outcome = run(config, roles, ranks.mesh, role_ranks.get(), host);
  if (role_ranks) role_ranks->end(outcome);
  return outcome;
}

}  // namespace

train::RunOutcome run_rl(RlConfig& config, const train::RunHost& host) {
  config.resolve("grpo");
  return run_rank(config, host, [](train::Roles&) {});
}

train::RunOutcome run_ppo(PpoConfig& config, const train::RunHost& host) {
  config.resolve("ppo");
  return run_rank(config, host, [&](train::Roles& roles) { load_critic(config, roles); });
}

}  // namespace temper::rl
