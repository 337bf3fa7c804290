// Odds ratio preference optimization: supervised tuning on the chosen side with a penalty on the
// odds of the rejected one, without a reference (Hong et al., arXiv 2403.07691).
#pragma once

#include "temper/preference/pair_task.h"

namespace temper::preference {

class OrpoTask : public PairTask {
 public:
  OrpoTask(const PreferenceConfig& config, train::Roles& roles, dist::Group& group,
           train::Messages& messages);

 protected:
  // Equation 6: the mean over pairs of chosen's mean negative log-likelihood - λ log σ(log odds
  // ratio), the latter of log-probabilities averaged over each completion.
  train::Loss loss_of(const Batch& batch, const train::ForwardPass& pass) override;

 private:
  models::CausalLM& model_;
  bool with_prompt_;  // the likelihood counts the prompt
};

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_orpo(PreferenceConfig& config, const train::RunHost& host);

}  // namespace temper::preference
