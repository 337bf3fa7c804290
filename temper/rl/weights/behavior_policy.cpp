#include "temper/rl/weights/behavior_policy.h"

#include "temper/rl/weights/rank_policy.h"
#include "temper/rl/weights/server_policy.h"
#include "temper/rl/weights/snapshot_policy.h"

namespace temper::rl {

std::unique_ptr<BehaviorPolicy> make_behavior_policy(const RlConfig& config, train::Policy& policy,
                                                     const dist::Mesh& mesh,
                                                     workers::RoleRanks* role_ranks,
                                                     train::Messages& messages,
                                                     std::function<bool()> stop) {
  if (role_ranks && !config.roles.rollout.empty())
    return std::make_unique<RankPolicy>(config, policy, mesh, *role_ranks, messages);
  if (config.rollout.server.used())
    return std::make_unique<ServerPolicy>(config, policy, mesh, messages, std::move(stop));
  if (config.rl.max_staleness > 0) return std::make_unique<SnapshotPolicy>(config, policy);
  return nullptr;
}

}  // namespace temper::rl
