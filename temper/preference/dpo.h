// Direct preference optimization and its kin: dpo's losses (losses.h) of the policy's
// log-probabilities against a reference's.
#pragma once

#include <memory>

#include "temper/preference/losses.h"
#include "temper/preference/pair_task.h"

namespace temper::preference {

class DpoTask : public PairTask {
 public:
  DpoTask(
      const PreferenceConfig& config, train::Roles& roles, dist::Group& group,
      train::Messages& messages, std::function<bool()> stop = [] { return false; },
      workers::RoleRanks* role_ranks = nullptr);

  void begin(int64_t steps_made) override;

 protected:
  train::Loss loss_of(const Batch& batch, const train::ForwardPass& pass) override;
  void prepare(Batch& batch, dist::Group* group) override;

 private:
  // Sets Batch::kl, and Batch::transported.
  void estimate_divergence(Batch& batch, dist::Group* group);
  void transport(Batch& batch, dist::Group* group);

  models::CausalLM& model_;
  const LossChoice& losses_;
  const bool unpaired_;
  std::unique_ptr<Reference> reference_;
  std::function<bool()> stop_;
};

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_dpo(PreferenceConfig& config, const train::RunHost& host);

}  // namespace temper::preference
