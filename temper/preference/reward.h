// Reward models of pairs of completions (Bradley and Terry 1952; as InstructGPT's, Ouyang et al.,
// arXiv 2203.02155, equation 1).
#pragma once

#include <string>

#include "temper/preference/pair_task.h"

namespace temper::preference {

class RewardTask : public PairTask {
 public:
  RewardTask(const PreferenceConfig& config, train::ScalarPolicy& policy, dist::Group& group,
             train::Messages& messages);

 protected:
  // The mean over pairs of -log σ(r_chosen - r_rejected - margin), r the scalar at a side's last
  // token; with center_rewards_coefficient c (Eisenstein et al., arXiv 2312.09244, equation 3) also
  // c (r_chosen + r_rejected)².
  train::Loss loss_of(const Batch& batch, const train::ForwardPass& pass) override;

 private:
  models::ScalarModel& model_;
  bool said_margins_ = false;
};

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_reward(PreferenceConfig& config, const train::RunHost& host);

}  // namespace temper::preference
