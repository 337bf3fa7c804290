// Importance weights of tokens that an earlier policy, or another program, sampled.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/train/loss.h"

namespace temper::rl {

// How the importance weight π_old / π_sampler of each token is bounded.
struct ImportanceCorrection {
  bool mask = false;
  // min(weight, cap): truncated importance sampling (Yao et al., "Your efficient RL framework
  // secretly brings you off-policy RL training", 2025).
  double cap = 2;
  // With `mask`: the weight within [low, high], 0 outside (IcePop: Zhao et al., "Small leak can
  // sink a great ship", 2025).
  double low = 0.5, high = 5;

  at::Tensor weight(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M) const;
  // 1 where the weight is out of these bounds.
  at::Tensor outside(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M) const;
};

// Adds the metrics mismatch_kl, an estimate of KL(π_sampler ‖ π_old) in nats per token
// (exp(d) - d - 1 with d = old - sampler), and mismatch_fraction, the share of tokens out of
// bounds.
void add_mismatch(train::Loss& loss, const ImportanceCorrection& correction,
                  const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M);

}  // namespace temper::rl
