// The per-token terms of policy-gradient losses, shared by the algorithms of rl/algorithms and the
// losses of the Tinker API (tinker/losses.h). A suffix _M means a tensor [M], one value per token,
// float32 or float64. Terms are differentiable with respect to logp_M, the log-probabilities under
// the current policy, and the ratios made from it. old_logp_M (at the start of the rollout batch,
// or when the tokens were sampled) and advantage_M are constants. sg[..]: stop-gradient.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::train {

struct RatioBounds {
  double low = 0, high = 0;  // PPO's 1 - ε and 1 + ε
};

// The importance ratio ρ = π_θ / π_old of each token (PPO, Schulman et al., arXiv 1707.06347,
// section 3).
at::Tensor importance_ratio(const at::Tensor& logp_M, const at::Tensor& old_logp_M);
// s = (π_θ(y) / π_old(y))^(1/|y|), at each token of its completion, with a gradient through each
// token: GSPO-token (Zheng et al., arXiv 2507.18071, equations 7 and 14): sg[s] · π_θ / sg[π_θ].
// mean_M: log s, the mean of logp - old_logp over the token's completion; a constant.
at::Tensor sequence_ratio(const at::Tensor& logp_M, const at::Tensor& mean_M);

// -min(ρA, clip(ρ) A) (PPO, equation 7). With dual_clip c > 1 the loss is at most -cA where A < 0
// (dual-clip PPO, Ye et al., arXiv 1912.09729, equation 5); 0: off.
at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                             const RatioBounds& bounds, double dual_clip = 0);
// -4/τ σ(τ (ρ - 1)) A, τ = positive where A > 0, else negative (SAPO, Gao et al., arXiv 2511.20347,
// section 3).
at::Tensor soft_gate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double positive,
                     double negative);
// -sg(clip(ρ)) A logp (CISPO, MiniMax-M1, arXiv 2506.13585, equations 4 and 5).
at::Tensor clipped_importance(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                              const at::Tensor& logp_M, const RatioBounds& bounds);
// -(A logp - β/2 (logp - old)²) (DRO, Richemond et al., arXiv 2405.19107, section 3, with the
// square of each token's log-ratio in place of the completion's).
at::Tensor direct_reward(const at::Tensor& logp_M, const at::Tensor& old_logp_M,
                         const at::Tensor& advantage_M, double beta);
// float32: 1 where ρ is above the bounds and A > 0, or below them and A < 0; else 0. No gradient.
at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                const RatioBounds& bounds);

enum class KlEstimator { kK1, kK2, kK3 };
// Estimators of KL(π_θ ‖ π_ref) from samples of π_θ (Schulman, "Approximating KL divergence",
// 2020), d = ref - logp: k1 = -d, k2 = d²/2, k3 = exp(d) - d - 1.
at::Tensor kl(KlEstimator estimator, const at::Tensor& logp_M, const at::Tensor& ref_logp_M);

}  // namespace temper::train
