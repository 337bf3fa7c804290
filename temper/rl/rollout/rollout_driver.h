// Completes partial batches: completions, or episodes in an environment, by the rollout engine with
// the current policy or by another behavior policy (weights/behavior_policy.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/ops/backend.h"
#include "temper/rl/config.h"
#include "temper/rl/episodes/episode_sampler.h"
#include "temper/rl/rollout/partial_batch.h"
#include "temper/rl/weights/behavior_policy.h"
#include "temper/train/run/memory_limit.h"

namespace temper::rl {

class RolloutDriver {
 public:
  // Called for each group as soon as its last completion or episode is done.
  using Done = std::function<void(PartialGroup&)>;
  // behavior: null where the policy as it is samples.
  RolloutDriver(const RlConfig& config, train::Policy& policy, dist::Group& group,
                std::unique_ptr<BehaviorPolicy> behavior, Done done);

  // A batch whose unfinished completions are continued to max_tokens tokens in all.
  struct Stage {
    PartialBatch* batch;
    int64_t max_tokens;
  };
  // Samples with the policy after `policy_version` updates; in an environment whole episodes.
  // Throws RunError when stop() was called, AgreedError when no rank is left that samples.
  void sample(const std::vector<Stage>& stages, int64_t policy_version);
  // Samples with the policy as it is, until stop() says so.
  void sample_with_policy(const Stage& stage, const std::function<bool()>& stop);

  // Called now and then while it samples.
  void look_with(std::function<void()> look) { look_ = std::move(look); }

  EpisodeSampler* episodes() const { return episodes_.get(); }  // null: no environment
  bool exact() const {
    return ops::cpu_backend().batch_invariant() && (!behavior_ || behavior_->exact());
  }
  // Whether a behavior policy samples now, and not the engine.
  bool uses_behavior_policy() const { return completions_ != &engine_; }
  // As in BehaviorPolicy.
  void keep(int64_t policy_version);
  void share_processors(bool training);
  void stop();
  // Throws RunError where stop() was called or a rank is lost: for who waits while sampling.
  void check_running() const;

 private:
  void use(int64_t policy_version);
  bool samples_here() const;
  // `what`: for who watches, "sampling".
  void sample_stages(const std::vector<Stage>& stages, const char* what,
                     const std::function<bool()>& stop);
  void sample_completions(const std::vector<Stage>& stages, const char* what,
                          const std::function<bool()>& stop);
  void sample_episodes(PartialBatch& batch, const char* what, const std::function<bool()>& stop);
  // Where nobody is left to sample for one of the ranks, as its `why` says, all throw.
  void check_sampled(const std::string& why) const;

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  Done done_;
  std::function<void()> look_ = [] {};
  const train::MemoryWatch memory_;
  generate::Engine engine_;                   // samples with the policy as it is
  std::unique_ptr<BehaviorPolicy> behavior_;  // null: the engine samples
  generate::CompletionSource* completions_ = &engine_;
  int64_t version_ = 0;  // version of the policy that samples now
  std::unique_ptr<EpisodeSampler> episodes_;
  double began_ = 0;  // sampling, on the steady clock, in seconds
  std::atomic<bool> stopping_{false};
};

}  // namespace temper::rl
