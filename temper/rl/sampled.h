// Groups that are sampled: prompts are drawn, completions or episodes in an environment sampled by
// the rollout engine (or a Sampler, sampler.h), and judged by the rewards in the background while
// others are still being sampled.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/data/prompt_row.h"
#include "temper/generate/engine.h"
#include "temper/rewards/reward.h"
#include "temper/rl/config.h"
#include "temper/rl/episode_sampler.h"
#include "temper/rl/judge.h"
#include "temper/rl/sampler.h"
#include "temper/rl/source.h"
#include "temper/train/messages.h"
#include "temper/train/roles.h"

namespace temper::rl {

class SampledSource : public RolloutSource {
 public:
  // sampler: null where the policy samples for itself.
  SampledSource(const RlConfig& config, train::Policy& policy, dist::Group& group,
                train::Messages& messages, std::unique_ptr<Sampler> sampler = nullptr);

  int64_t planned_batches() const override;
  RolloutBatch next(int64_t policy_version) override;
  bool exact() const override { return sampler_ == nullptr; }
  bool samples() const override { return true; }
  void describe(MetricsRow& row) const override;
  bool evaluate(train::EvaluationSums& sums, const std::function<bool()>& stop) override;
  Json state() const override;
  void restore(const Json& state, const std::string& where) override;
  std::vector<std::pair<std::string, std::string>> summary() const override;
  void keep(int64_t policy_version) override;
  void share_processors(bool training) override;
  void stop() override;

 private:
  struct Prompt {
    int64_t key;  // of its random numbers: its number among all that the run drew
    data::PromptRow row;
  };
  // What happened while one batch was sampled.
  struct Statistics {
    int64_t refills = 0, groups_sampled = 0, dropped = 0;  // dropped: completions
    int64_t judged = 0;                                    // completions
    double rollout_seconds = 0, reward_seconds = 0;
    generate::Speculation::Statistics drafts;  // of all ranks
  };

  // A group while its episodes are sampled and judged.
  struct Pending {
    EpisodeGroup group;
    const Prompt* prompt;
    int64_t unfinished;
  };
  using PendingGroups = std::map<int64_t, Pending>;  // by key
  // `stop`, where given, is asked between the engine's steps: true leaves out what is unfinished.
  void sample_completions(const std::vector<const Prompt*>& prompts, int64_t samples,
                          PendingGroups& pending, const std::function<bool()>& stop);
  void sample_episodes(const std::vector<const Prompt*>& prompts, int64_t samples,
                       PendingGroups& pending, const std::function<bool()>& stop,
                       Statistics& statistics);
  std::vector<EpisodeGroup> judged_groups(PendingGroups pending, Statistics& statistics);
  std::vector<EpisodeGroup> sample_mine(const std::vector<Prompt>& prompts, int64_t samples,
                                        Statistics& statistics,
                                        const std::function<bool()>& stop = {});
  void judge(const Prompt& prompt, const EpisodeGroup& group);
  std::vector<EpisodeGroup> gather(std::vector<EpisodeGroup> mine) const;
  std::vector<EpisodeGroup> from_lines(const std::vector<std::string>& texts) const;
  std::vector<EpisodeGroup> fill(int64_t policy_version);
  void check_rewards() const;
  void count_failures(const rewards::FailureCounts& before, const EnvironmentCounts& in_episodes);
  EnvironmentCounts environment_counts() const;
  void warn();

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  train::Messages& messages_;
  data::Loader<data::PromptRow> loader_;
  data::RowSurvey survey_;
  std::vector<std::vector<Prompt>> evaluation_;  // by set
  generate::Engine engine_;                      // of the policy as it is
  std::unique_ptr<Sampler> sampler_;             // null: the engine samples
  generate::CompletionSource* completions_ = &engine_;
  std::unique_ptr<EpisodeSampler> episodes_;  // null: no environment
  rewards::RewardSet rewards_;
  Judge judge_;
  Statistics statistics_;                   // of the last batch
  int64_t judged_ = 0;                      // completions of the run, all ranks
  rewards::FailureCounts failures_;         // of all ranks, since the run began
  EnvironmentCounts environment_failures_;  // as well
};

}  // namespace temper::rl
