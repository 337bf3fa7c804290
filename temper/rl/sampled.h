// Groups that are sampled: prompts are drawn, completions or episodes in an environment sampled by
// the rollout engine (or a Sampler, sampler.h), and judged by the rewards in the background while
// others are still being sampled.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/rewards/reward.h"
#include "temper/rl/config.h"
#include "temper/rl/judge.h"
#include "temper/rl/model_reward.h"
#include "temper/rl/partial_batch.h"
#include "temper/rl/prompts.h"
#include "temper/rl/reference_asker.h"
#include "temper/rl/rollout_failures.h"
#include "temper/rl/rollout_sampler.h"
#include "temper/rl/source.h"
#include "temper/train/messages.h"

namespace temper::rl {

class SampledSource : public RolloutSource {
 public:
  // sampler: null where the policy samples for itself. asker: gives groups their reference
  // log-probabilities while others are sampled; null: nobody asks for them then.
  SampledSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
                train::Messages& messages, std::unique_ptr<Sampler> sampler = nullptr,
                std::unique_ptr<ReferenceAsker> asker = nullptr);

  int64_t planned_batches() const override { return prompts_.planned_batches(); }
  RolloutBatch next(int64_t policy_version) override;
  bool exact() const override { return sampler_.exact(); }
  bool samples() const override { return true; }
  void describe(MetricsRow& row) const override;
  bool evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) override;
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;
  void keep(int64_t policy_version) override { sampler_.keep(policy_version); }
  void share_processors(bool training) override { sampler_.share_processors(training); }
  void stop() override { sampler_.stop(); }

  // next() in parts, for several batches at a time. Draws a batch's prompts; null: the data has
  // ended.
  std::unique_ptr<PartialBatch> begin();
  void sample(const std::vector<RolloutSampler::Stage>& stages, int64_t policy_version) {
    sampler_.sample(stages, policy_version);
  }
  // Waits for the rewards of a batch whose completions are all done. Refills it where dynamic
  // sampling asks for it, by that policy.
  RolloutBatch finish(PartialBatch& batch, int64_t policy_version);
  // The lines of all ranks' completions so far, and a batch that goes on from them. The source was
  // restored to the batch's `from`.
  std::string lines(const PartialBatch& batch) const;
  std::unique_ptr<PartialBatch> resume(const std::string& lines, int64_t max_tokens,
                                       const std::string& where);

 private:
  PartialBatch draw(int64_t prompts);
  void deal(PartialBatch& batch, int64_t samples) const;
  // Of a group whose last completion is done.
  void sampled(PartialGroup& group);
  void close(PartialGroup& group);
  void judge(const PartialGroup& group);
  const ChatTemplate* template_of(const data::PromptRow& row) const;
  std::vector<EpisodeGroup> judged_groups(PartialBatch& batch);
  std::vector<EpisodeGroup> gather(std::vector<EpisodeGroup> mine) const;
  std::vector<EpisodeGroup> from_lines(const std::vector<std::string>& texts) const;
  std::vector<EpisodeGroup> fill(PartialBatch& batch, int64_t policy_version);

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  train::Messages& messages_;
  rewards::RewardSet rewards_;
  Closings closings_;
  Prompts prompts_;
  RolloutSampler sampler_;
  std::unique_ptr<ReferenceAsker> asker_;
  Judge judge_;
  std::map<int64_t, std::vector<rewards::RewardResult>> verdicts_;  // by group, not yet asked for
  std::map<int64_t, EpisodeGroup> scored_;                          // by asker_, the same
  RolloutFailures failures_;
  data::LoaderState behind_;                                // of the last batch
  int64_t groups_sampled_ = 0, refills_ = 0, dropped_ = 0;  // of the last batch
  generate::Speculation::Statistics speculation_;           // as well
};

}  // namespace temper::rl
