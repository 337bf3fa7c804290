// Failures of rewards and environments while a run samples, of all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/json.h"
#include "temper/dist/group.h"
#include "temper/metrics/row.h"
#include "temper/rewards/reward.h"
#include "temper/rl/episodes/episode_sampler.h"
#include "temper/rl/rollout/partial_batch.h"
#include "temper/train/messages.h"

namespace temper::rl {

class RolloutFailures {
 public:
  // episodes: null without an environment. Both outlive this.
  RolloutFailures(rewards::RewardSet& rewards, EpisodeSampler* episodes)
      : rewards_(rewards), episodes_(episodes) {}

  // Adds what failed since the last call on any rank, while this batch was sampled, and makes the
  // batch's counts those of all ranks. Throws AgreedError where a judge's server answered for no
  // completion of the batch, and where the rewards of all completions, or all episodes, failed in
  // kMostFailedRollouts batches in a row: such a run trains nothing.
  void count(PartialBatch& batch, dist::Group& group);
  // Leaves out what failed since the last call, in an evaluation.
  void pass_over();

  static constexpr int64_t kMostFailedRollouts = 3;

  int64_t of_rewards() const { return rewards_failed_.all(); }
  // The first failure since this process began, for messages; "none": there was none.
  std::string first() const;
  void warn(train::Messages& messages) const;
  void describe(MetricsRow& row) const;
  Json state() const;
  void restore(const Json& state, const std::string& where);

 private:
  Json of_this_rank(const PartialBatch& batch, const dist::Group& group);
  std::string rewarded_here() const;
  void check_answered(const PartialBatch& batch) const;
  void check_any_succeeds(const PartialBatch& batch, const std::string& reward,
                          const std::string& environment);
  EnvironmentCounts episodes_now() const {
    return episodes_ ? episodes_->counts() : EnvironmentCounts();
  }

  rewards::RewardSet& rewards_;
  EpisodeSampler* episodes_;
  // This rank's failures that count() has counted already.
  rewards::FailureCounts rewards_seen_;
  EnvironmentCounts episodes_seen_;
  // Failures of all ranks since the run began.
  rewards::FailureCounts rewards_failed_;
  EnvironmentCounts episodes_failed_;
  int64_t failed_in_a_row_ = 0;  // number of failed batches in a row, up to the last one
  // Each with the rank where it happened: the first failure in these batches, and the first ones
  // since this process began.
  std::string cause_, first_of_rewards_, first_of_environment_;
  // The reward or environment whose failures were worth more than values that it gave, on any rank;
  // empty: none.
  std::string rewarded_;
};

// The list of so many whole numbers at `key`, zeros where there is none. Throws DataError.
std::vector<int64_t> whole_numbers(const Json& state, const char* key, size_t count,
                                   const std::string& where);

}  // namespace temper::rl
