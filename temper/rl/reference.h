// The reference model of the KL term: the policy as the run starts it.
#pragma once

#include <functional>
#include <memory>

#include "temper/train/policy.h"

namespace temper::rl {

// Costs no second model where an adapter trains: a fresh adapter's reference is the base without
// it, one that goes on is kept as a copy of its matrices. Where all weights train, the model is
// loaded a second time and stays frozen.
class Reference {
 public:
  // Made before the run resumes anything: the policy is still what the config names.
  Reference(train::Policy& policy, const RunConfig& config);

  // Runs `body` with the reference model and its Context::adapter. Gradients are off.
  void with(const std::function<void(models::CausalLM& model, int adapter)>& body);

 private:
  train::Policy& policy_;
  std::unique_ptr<models::CausalLM> frozen_;  // where all weights train
  int adapter_ = -1;  // the policy without its adapter, or a copy of the one that goes on
};

}  // namespace temper::rl
