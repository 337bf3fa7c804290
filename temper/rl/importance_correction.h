// Importance weights of tokens that an earlier policy, or another program, sampled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "temper/train/loss.h"

namespace temper::rl {

// How the importance weight π_old / π_sampler of each token, or of each completion, is bounded.
// cu_length_C1: completion c has the tokens [cu_length[c], cu_length[c + 1]).
struct ImportanceCorrection {
  bool mask = false;
  // A token's weight is that of its completion: the product of all its tokens' ratios, at most
  // `cap`; with `mask` 0 above it (Liu et al., "When speed kills stability", 2025).
  bool sequence = false;
  // min(weight, cap): truncated importance sampling (Yao et al., "Your efficient RL framework
  // secretly brings you off-policy RL training", 2025).
  double cap = 2;
  // With `mask` alone: the weight within [low, high], 0 outside (IcePop: Zhao et al., "Small leak
  // can sink a great ship", 2025).
  double low = 0.5, high = 5;

  at::Tensor weight(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                    std::span<const int64_t> cu_length_C1) const;
  // 1 where the weight is out of these bounds.
  at::Tensor outside(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                     std::span<const int64_t> cu_length_C1) const;

 private:
  at::Tensor unbounded(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                       std::span<const int64_t> cu_length_C1) const;
};

// Adds the metrics mismatch_kl, an estimate of KL(π_sampler ‖ π_old) in nats per token
// (exp(d) - d - 1 with d = old - sampler), and mismatch_fraction, the share of tokens out of
// bounds.
void add_mismatch(train::Loss& loss, const ImportanceCorrection& correction,
                  const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                  std::span<const int64_t> cu_length_C1);

}  // namespace temper::rl
