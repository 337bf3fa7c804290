#include "temper/rl/sampler.h"

#include "temper/rl/remote_sampler.h"
#include "temper/rl/role_sampler.h"
#include "temper/rl/snapshot_sampler.h"

namespace temper::rl {

std::unique_ptr<Sampler> make_sampler(const RlConfig& config, train::Policy& policy,
                                      const dist::Mesh& mesh, roles::RoleRanks* role_ranks,
                                      train::Messages& messages, std::function<bool()> stop) {
  if (role_ranks && !config.roles.rollout.empty())
    return std::make_unique<RoleSampler>(config, policy, mesh, *role_ranks, messages);
  if (config.rollout.server.used())
    return std::make_unique<RemoteSampler>(config, policy, mesh, messages, std::move(stop));
  if (config.rl.max_staleness > 0) return std::make_unique<SnapshotSampler>(config, policy);
  return nullptr;
}

}  // namespace temper::rl
