#include "temper/rl/serving.h"

#include "temper/roles/rank_server.h"
#include "temper/roles/sampling.h"
#include "temper/roles/served_reference.h"
#include "temper/roles/wire.h"
#include "temper/train/roles.h"

namespace temper::rl {

train::RunOutcome serve_run(RlConfig& config, dist::World& world) {
  const bool samples = config.roles.samples(world.rank()),
             scores = config.roles.scores(world.rank());
  // Those that train know where it is before it has loaded anything.
  roles::RankServer server(world, config.training_ranks(world.size()).size());
  train::Policy policy = train::load_policy(config);
  std::optional<roles::Scoring> scoring;
  if (scores) {
    scoring.emplace(train::frozen_start(policy, config));
    server.add(roles::kScore,
               [&](const std::string&, const std::string& body) { return scoring->score(body); });
  }
  if (!samples) {
    if (!policy.lora) policy.model = nullptr;  // the reference is a model of its own
    return server.serve();
  }
  roles::Sampling sampling(policy, config.rollout.options(config.seed),
                           config.rollout.engine_options());
  server.add(roles::kSample,
             [&](const std::string&, const std::string& body) { return sampling.sample(body); });
  server.add(roles::kWeights, [&](const std::string& version, const std::string& body) {
    return sampling.take_weights(version, body);
  });
  return server.serve([&](const std::function<bool()>& stop) { sampling.run(stop); });
}

}  // namespace temper::rl
