// Samples what partial batches lack: completions, or episodes in an environment, by the rollout
// engine with the current policy or by a Sampler (sampler.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/rl/config.h"
#include "temper/rl/episode_sampler.h"
#include "temper/rl/partial_batch.h"
#include "temper/rl/sampler.h"

namespace temper::rl {

class RolloutSampler {
 public:
  // Called for each group as soon as its last completion or episode is done.
  using Done = std::function<void(PartialGroup&)>;
  // sampler: null where the policy samples for itself.
  RolloutSampler(const RlConfig& config, train::Policy& policy, dist::Group& group,
                 std::unique_ptr<Sampler> sampler, Done done);

  // Completions of the batch that are not done go on to so many tokens in all.
  struct Stage {
    PartialBatch* batch;
    int64_t max_tokens;
  };
  // By the policy after so many updates. In an environment whole episodes are sampled. Throws
  // RunError when stop() was called, AgreedError when no rank is left that samples.
  void sample(const std::vector<Stage>& stages, int64_t policy_version);
  // By the policy as it is, until stop() says so.
  void sample_with_policy(const Stage& stage, const std::function<bool()>& stop);

  EpisodeSampler* episodes() const { return episodes_.get(); }  // null: no environment
  bool exact() const { return !sampler_ || sampler_->exact(); }
  // Whether completions come from the Sampler now.
  bool uses_sampler() const { return completions_ != &engine_; }
  // As in Sampler.
  void keep(int64_t policy_version);
  void share_processors(bool training);
  void stop();

 private:
  void use(int64_t policy_version);
  bool samples_here() const;
  void sample_stages(const std::vector<Stage>& stages, const std::function<bool()>& stop);
  void sample_completions(const std::vector<Stage>& stages, const std::function<bool()>& stop);
  void sample_episodes(PartialBatch& batch, const std::function<bool()>& stop);
  // Where nobody is left to sample for one of the ranks, as its `why` says, all throw.
  void check_sampled(const std::string& why) const;

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  Done done_;
  generate::Engine engine_;           // of the policy as it is
  std::unique_ptr<Sampler> sampler_;  // null: the engine samples
  generate::CompletionSource* completions_ = &engine_;
  int64_t version_ = 0;  // of the policy that samples now
  std::unique_ptr<EpisodeSampler> episodes_;
  std::atomic<bool> stopping_{false};
};

}  // namespace temper::rl
