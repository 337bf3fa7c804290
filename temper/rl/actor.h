// The half of a reinforcement-learning step that makes data: prompts are drawn, completions sampled
// with the policy itself, and judged.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "temper/data/prompt_row.h"
#include "temper/generate/engine.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithm.h"
#include "temper/rl/judge.h"
#include "temper/rl/rollout.h"
#include "temper/train/run.h"

namespace temper::rl {

// What one rollout batch was, beside its completions. Same on all ranks.
struct RolloutStatistics {
  double rollout_seconds = 0, reward_seconds = 0;
  int64_t refills = 0,
          groups_sampled = 0;  // dynamic sampling: rounds after the first, groups in all
  int64_t dropped = 0;         // completions left out because a reward failed
  rewards::FailureCounts failures;
};

class Actor {
 public:
  Actor(train::Run& run, const Algorithm& algorithm);

  // The next rollout batch: prompts_per_rollout groups of group_size completions with rewards and
  // advantages, the same on all ranks. With dynamic sampling, groups without signal are replaced
  // while max_refills allows. Empty: the data has ended.
  RolloutBatch next(RolloutStatistics& statistics);

  // One completion of each evaluation prompt, judged.
  RolloutBatch evaluate();

  data::Loader<data::PromptRow>& loader() { return loader_; }
  const rewards::RewardSet& rewards() const { return rewards_; }

 private:
  struct Group {
    int64_t key;  // of its random numbers: the prompt's number among all that the run drew
    data::PromptRow prompt;
  };
  std::vector<Rollout> sample(const std::vector<Group>& groups, int64_t samples,
                              RolloutStatistics& statistics);
  void judge_group(const Group& group, std::vector<Rollout> rollouts);
  std::vector<Rollout> gather(std::vector<Rollout> mine) const;

  train::Run& run_;
  const Algorithm& algorithm_;
  data::Loader<data::PromptRow> loader_;
  std::vector<Group> eval_prompts_;
  generate::Engine engine_;
  rewards::RewardSet rewards_;
  Judge judge_;
};

}  // namespace temper::rl
