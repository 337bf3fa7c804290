// Groups sampled when the trainer asks for them: prompts are drawn, the rollout driver samples
// their completions or their episodes in an environment, and a reward worker judges finished groups
// while others are still being sampled.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/rewards/closings.h"
#include "temper/rewards/reward.h"
#include "temper/rl/config.h"
#include "temper/rl/rollout/model_reward.h"
#include "temper/rl/rollout/partial_batch.h"
#include "temper/rl/rollout/prompts.h"
#include "temper/rl/rollout/reference_worker.h"
#include "temper/rl/rollout/reward_worker.h"
#include "temper/rl/rollout/rollout_driver.h"
#include "temper/rl/rollout/rollout_failures.h"
#include "temper/rl/rollout/source.h"
#include "temper/train/messages.h"

namespace temper::rl {

class SyncSource : public RolloutSource {
 public:
  // behavior: null where the policy as it is samples. reference_worker: gives groups their
  // reference log-probabilities while others are sampled; null: nobody asks for them then. Judges'
  // servers are asked once (RewardSet::check_answers).
  SyncSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
             train::Messages& messages, std::unique_ptr<BehaviorPolicy> behavior = nullptr,
             std::unique_ptr<ReferenceWorker> reference_worker = nullptr,
             const rewards::RewardSet::Make& make_reward = rewards::make_reward);

  int64_t planned_batches() const override { return prompts_.planned_batches(); }
  RolloutBatch next(int64_t policy_version) override;
  bool exact() const override { return driver_.exact(); }
  bool samples() const override { return true; }
  void describe(MetricsRow& row) const override;
  bool evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) override;
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;

  // For a caller that samples on another thread than the one that trains, which calls these three:
  // keeps the policy's weights as they are, to sample as this version.
  void keep(int64_t policy_version) { driver_.keep(policy_version); }
  // Divides the machine's processors between sampling and the calling thread, which trains from now
  // on, or waits.
  void share_processors(bool training) { driver_.share_processors(training); }
  // The run is ending: sampling that waits for others throws.
  void stop() { driver_.stop(); }

  // next() in parts, for several batches at a time. Draws a batch's prompts; null: the data has
  // ended.
  std::unique_ptr<PartialBatch> begin();
  void sample(const std::vector<RolloutDriver::Stage>& stages, int64_t policy_version) {
    driver_.sample(stages, policy_version);
  }
  // Waits for the rewards of a batch whose completions are all done. Refills it where dynamic
  // sampling asks for it, by that policy.
  RolloutBatch finish(PartialBatch& batch, int64_t policy_version);
  // The lines of all ranks' completions so far, and a batch that continues from them. Before
  // resume() the source must be restored to the batch's `state_before`.
  std::string lines(const PartialBatch& batch) const;
  std::unique_ptr<PartialBatch> resume(const std::string& lines, int64_t max_tokens,
                                       const std::string& where);

 private:
  PartialBatch draw(int64_t prompts);
  void deal(PartialBatch& batch, int64_t samples) const;
  // Called for a group whose last completion is done: hands it to the workers.
  void sampled(PartialGroup& group);
  void close(PartialGroup& group);
  void judge(const PartialGroup& group);
  // Of the first failure of each reward, which may be one of many that each cost time.
  void warn_of_failures();
  const ChatTemplate* template_of(const data::PromptRow& row) const;
  std::vector<EpisodeGroup> judged_groups(PartialBatch& batch);
  std::vector<EpisodeGroup> gather(std::vector<EpisodeGroup> mine) const;
  std::vector<EpisodeGroup> from_lines(const std::vector<std::string>& texts) const;
  std::vector<EpisodeGroup> fill(PartialBatch& batch, int64_t policy_version);
  void learn(const PartialBatch& batch, const EpisodeGroup& group);

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  train::Messages& messages_;
  rewards::RewardSet rewards_;
  std::mutex failed_mutex_;
  std::vector<std::string> failed_;  // what the thread of the rewards has told
  rewards::Closings closings_;
  Prompts prompts_;
  const LineFormat line_format_;
  RolloutDriver driver_;
  std::unique_ptr<ReferenceWorker> reference_worker_;
  RewardWorker reward_worker_;
  const std::function<void()> check_running_ = [this] {
    driver_.check_running();
    warn_of_failures();
  };
  std::map<int64_t, std::vector<rewards::RewardResult>> verdicts_;  // by group, not yet asked for
  std::map<int64_t, EpisodeGroup> scored_;  // by reference_worker_, the same
  RolloutFailures failures_;
  data::LoaderState state_after_;  // of the last batch
  BatchCounts last_;               // of it, over all ranks
};

}  // namespace temper::rl
