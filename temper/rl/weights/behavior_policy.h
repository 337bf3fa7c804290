// Behavior policies: the weights that sample the completions of a rollout batch. A run without one
// samples in this process with the current weights. The others: weights kept of an earlier version
// while training goes on (SnapshotPolicy), servers that are given the weights (ServerPolicy), ranks
// with the role `rollout` (RankPolicy).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "temper/dist/mesh.h"
#include "temper/generate/completion_source.h"
#include "temper/rl/config.h"
#include "temper/train/messages.h"
#include "temper/train/roles/policy.h"
#include "temper/workers/role_ranks.h"

namespace temper::rl {

class BehaviorPolicy {
 public:
  virtual ~BehaviorPolicy() = default;

  // Keeps the policy's weights as they are after `version` updates, for use(). Called on the thread
  // that trains, on all ranks.
  virtual void keep(int64_t version) = 0;
  // Completions are sampled with the weights of this version from now on. Called on the thread that
  // samples, with versions in order; earlier ones are given up.
  virtual void use(int64_t version) = 0;
  virtual generate::CompletionSource& completions() = 0;
  // Whether completions are, bit for bit, those of the policy as it is when use() is called.
  virtual bool exact() const { return false; }
  // Whether this process computes the completions, with all ranks that hold parts of its model.
  virtual bool samples_here() const { return true; }
  // The version that samples after use(version).
  virtual int64_t sampling_version(int64_t version) const { return version; }
  // Divides the machine's processors between sampling and the calling thread, which trains now or
  // waits.
  virtual void share_processors(bool /*training*/) {}
  // Ends sampling: completions that were asked for are not delivered. From any thread.
  virtual void stop() {}
};

// How many versions of what trains this process has beside it to sample ahead, the one that samples
// and those that wait for their turn; 0: it samples with the current policy, or does not sample.
int64_t versions_here(const RlConfig& config);

// The behavior policy that the config asks for; null: the rollout engine samples with the current
// policy. role_ranks: null where no rank has a role of its own. stop: whether the run was asked to
// end; called on any thread.
std::unique_ptr<BehaviorPolicy> make_behavior_policy(const RlConfig& config, train::Policy& policy,
                                                     const dist::Mesh& mesh,
                                                     workers::RoleRanks* role_ranks,
                                                     train::Messages& messages,
                                                     std::function<bool()> stop = {});

}  // namespace temper::rl
