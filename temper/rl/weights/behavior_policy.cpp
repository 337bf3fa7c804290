#include "temper/rl/weights/behavior_policy.h"

#include <algorithm>

#include "temper/rl/weights/rank_policy.h"
#include "temper/rl/weights/server_policy.h"
#include "temper/rl/weights/snapshot_policy.h"

namespace temper::rl {

// Each batch that is begun has the weights of its own version (AsyncSource::look_ahead).
int64_t versions_here(const RlConfig& config) {
  const bool others = !config.roles.rollout.empty() || config.rollout.server.used();
  if (others || config.rl.replay || config.rl.max_staleness == 0) return 0;
  const int64_t updates = config.rl.updates_per_batch(),
                batches = (config.rl.max_staleness + updates - 1) / updates;
  return std::clamp<int64_t>(batches, 1, config.train.max_inflight.value_or(batches));
}

std::unique_ptr<BehaviorPolicy> make_behavior_policy(const RlConfig& config, train::Policy& policy,
                                                     const dist::Mesh& mesh,
                                                     workers::RoleRanks* role_ranks,
                                                     train::Messages& messages,
                                                     std::function<bool()> stop) {
  if (role_ranks && !config.roles.rollout.empty())
    return std::make_unique<RankPolicy>(config, policy, mesh, *role_ranks, messages);
  if (config.rollout.server.used())
    return std::make_unique<ServerPolicy>(config, policy, mesh, messages, std::move(stop));
  if (versions_here(config) > 0) return std::make_unique<SnapshotPolicy>(config, policy);
  return nullptr;
}

}  // namespace temper::rl
