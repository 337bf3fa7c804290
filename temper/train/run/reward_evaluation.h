// Rewards in an evaluation, under any verb (train.eval_rewards): the policy completes the prompts
// of data.eval as the section `rollout` says, and rewards judge the completions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "temper/data/rows/prompt_row.h"
#include "temper/dist/mesh.h"
#include "temper/generate/request.h"
#include "temper/rewards/closings.h"
#include "temper/rewards/reward.h"
#include "temper/train/hooks.h"
#include "temper/train/messages.h"
#include "temper/train/roles/policy.h"

namespace temper::train {

// The names of its metrics, without eval/.
std::vector<std::string> rewarded_metrics(const TrainSection& section);

// Reads the prompts of data.eval, by set. A row of ids with labels has as its prompt what stands
// before the first label; of a conversation the assistant's final turns are left out. Throws
// DataError for a row without a prompt, or without a field that a reward reads.
std::vector<std::vector<data::PromptRow>> evaluation_prompts(const RunConfig& config,
                                                             const Policy& policy,
                                                             const rewards::RewardSet& rewards);

// What is sampled depends on the seed, the prompt's number and the sample's alone: every evaluation
// draws the same random numbers, whatever the ranks and whenever the run was resumed.
class RewardEvaluation : public Hook {
 public:
  // Starts the rewards, asks judges' servers once and reads the prompts. Throws ConfigError,
  // DataError.
  RewardEvaluation(const RunConfig& config, const Policy& policy, const dist::Mesh& mesh,
                   Messages& messages,
                   const rewards::RewardSet::Make& make_reward = rewards::make_reward);

  Evaluated evaluate(MetricsRow& row, const std::function<bool()>& stop) override;

 private:
  struct Answer {
    generate::Completion completion;
    rewards::RewardResult verdict;
  };
  std::vector<Answer> complete(size_t set, int64_t first, const std::function<bool()>& stop) const;
  void judge(size_t set, int64_t first, std::vector<Answer>& answers,
             const std::function<bool()>& stop);
  void warn_of_failures();

  const RunConfig& config_;
  const Policy& policy_;
  dist::Group& group_;
  Messages& messages_;
  const generate::GenerationOptions options_;
  rewards::RewardSet rewards_;
  rewards::Closings closings_;
  std::vector<std::string> set_names_;
  std::vector<std::vector<data::PromptRow>> prompts_;  // [sets]
  int64_t failures_ = 0;                               // that were told
};

}  // namespace temper::train
