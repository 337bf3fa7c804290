// The verbs that policy-gradient losses are made of. Suffixes: _M the tokens of some completions
// one after the other, _C the completions. Everything is differentiable in logp_M (and entropy_M)
// and in nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "temper/base/run_config.h"

namespace temper::rl {

// Some completions of one update, whole.
struct CompletionBatch {
  at::Tensor logp_M;              // of the policy
  at::Tensor old_logp_M;          // of the policy that the rollout batch began with; a constant
  at::Tensor ref_logp_M;          // of the reference model; undefined where no term asks for it
  at::Tensor entropy_M;           // of the policy's next-token distribution, nats
  at::Tensor advantage_M;         // the completion's, at each of its tokens
  at::Tensor weight_M;            // what a token counts in the update's loss: aggregate()
  at::Tensor correction_M;        // truncated importance weight of a remote sampler; undefined: 1
  std::vector<int64_t> start_C1;  // completion c has tokens [start[c], start[c + 1])
};

// A part of the loss: coefficient * Σ weight_M * value_M.
struct Term {
  const char* name;
  double coefficient;
  at::Tensor value_M;
};

struct Loss {
  std::vector<Term> terms;
  at::Tensor clipped_M;  // 1 where the ratio left the trust region in the direction that the
                         // advantage pushes, else 0
};

// π_θ / π_old of each token (PPO, Schulman et al., arXiv 1707.06347, section 3).
at::Tensor importance_ratio(const CompletionBatch& b);

// s_i = (π_θ(y) / π_old(y))^(1/|y|), at each token of its completion, with a gradient through each
// token: GSPO-token (Zheng et al., arXiv 2507.18071, equations 7 and 14): sg[s_i] · π_θ / sg[π_θ].
at::Tensor sequence_ratio(const CompletionBatch& b);

// -min(ρA, clip(ρ, 1 - low, 1 + high) A) (PPO, equation 7). With dual_clip c > 1, where A < 0 no
// more than -cA (Ye et al., arXiv 1912.09729, equation 5); 0: none.
at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double low,
                             double high, double dual_clip = 0);
// 1 where ρ > 1 + high and A > 0, or ρ < 1 - low and A < 0.
at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                double low, double high);

// Estimators of KL(π_θ ‖ π_ref) from samples of π_θ (Schulman, "Approximating KL divergence",
// 2020), d = ref - logp: k1 = -d, k2 = d²/2, k3 = exp(d) - d - 1.
at::Tensor kl(RlSection::KlEstimator estimator, const at::Tensor& logp_M,
              const at::Tensor& ref_logp_M);

// What every token of each completion counts, by completion: token-mean 1 / ΣL; seq-mean-token-mean
// 1 / (C L_c); seq-mean-token-sum 1 / C; seq-mean-token-sum-norm 1 / (C max_new_tokens).
std::vector<double> aggregate(RlSection::Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens);

// min(π_old / π_sampler, cap): truncated importance sampling (Yao et al., "Your efficient RL
// framework secretly brings you off-policy RL training", 2025).
at::Tensor truncated_importance(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                                double cap);

}  // namespace temper::rl
