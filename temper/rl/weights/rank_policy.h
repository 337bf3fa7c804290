// Ranks with the role `rollout` sample (the config's section `roles`), with the weights of each
// version, which are sent to them while training goes on.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "temper/dist/mesh.h"
#include "temper/generate/engine.h"
#include "temper/rl/weights/behavior_policy.h"
#include "temper/rl/weights/snapshot_policy.h"
#include "temper/train/messages.h"
#include "temper/workers/rank_engine.h"
#include "temper/workers/role_ranks.h"
#include "temper/workers/weights_sender.h"

namespace temper::rl {

// Completions are those of this process, bit for bit, where roles.tensor is mesh.tensor. When the
// last of the ranks is gone this process samples, unless others hold parts of its model: then
// completions() throws NoServer.
class RankPolicy : public BehaviorPolicy {
 public:
  RankPolicy(const RlConfig& config, train::Policy& policy, const dist::Mesh& mesh,
             workers::RoleRanks& role_ranks, train::Messages& messages);
  ~RankPolicy() override;

  void keep(int64_t version) override;
  void use(int64_t version) override;
  generate::CompletionSource& completions() override { return engine_; }
  // Sums over another number of tensor parallel ranks round differently.
  bool exact() const override { return !ahead_ && !split_; }
  bool samples_here() const override { return false; }
  void share_processors(bool training) override;
  void stop() override { engine_.stop(); }

 private:
  generate::CompletionSource* fall_back();

  train::Policy& policy_;
  workers::RoleRanks& role_ranks_;
  train::Messages& messages_;
  const bool ahead_, whole_, split_;
  const generate::EngineOptions options_;
  // Take over when the last of the ranks is gone: the snapshots where rollout is asynchronous, else
  // an engine of the policy as it is.
  std::unique_ptr<SnapshotPolicy> snapshots_;
  std::unique_ptr<generate::Engine> own_;
  std::shared_ptr<workers::WeightsSender> sender_;  // null except on rank 0
  std::mutex mutex_;                                // for keep() on one thread and use() on another
  std::map<int64_t, std::shared_ptr<const std::string>> kept_;  // [version] weights for snapshots_
  int64_t kept_last_ = -1, used_ = -1;
  bool alone_ = false;  // the ranks are gone
  std::shared_ptr<generate::remote::ServerPool> pool_;
  workers::RankEngine engine_;
};

}  // namespace temper::rl
