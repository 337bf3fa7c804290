// The reference model of reinforcement learning: the initial policy or a model of its own
// (rl.reference), which may follow the policy (rl.reference_update_every).
#pragma once

#include <cstdint>
#include <string>

#include "temper/io/tensor_view.h"
#include "temper/rl/config.h"
#include "temper/train/roles/roles.h"

namespace temper::rl {

// Declared once for a run and for `temper check`. Throws ConfigError.
train::FrozenSource reference_source(const RlConfig& config, const train::Policy& policy);

// After every rl.reference_update_every updates the reference becomes mix * policy +
// (1 - mix) * reference (TR-DPO, Gorbatovski et al., arXiv 2404.09656, equation 4). Where the
// config asks for none, every function does nothing.
class MovingReference {
 public:
  // reference: Roles::reference; null where there is none.
  MovingReference(const RlConfig& config, const train::Policy& policy, train::Frozen* reference);

  // Every rank must call these.
  void after_update(int64_t step) const;
  void add_to(TensorMap& tensors) const;  // for checkpoints
  // Takes what a checkpoint holds. `where` begins the message of a DataError.
  void restore(const TensorMap& tensors, const std::string& where) const;

 private:
  const RlSection& rl_;
  models::CausalLM& policy_;
  models::CausalLM* reference_ = nullptr;  // null: it does not move
};

}  // namespace temper::rl
