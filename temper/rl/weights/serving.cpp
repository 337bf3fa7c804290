#include "temper/rl/weights/serving.h"

#include "temper/train/roles.h"
#include "temper/workers/model_worker.h"

namespace temper::rl {

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

}  // namespace temper::rl
