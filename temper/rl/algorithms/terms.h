// The functions that policy-gradient losses are composed of. Suffixes: _M the sampled tokens of
// some episodes one after the other, _C the episodes. All are differentiable with respect to
// logp_M, entropy_M and value_M only. How rewards become advantages is in credit.h and gae.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "temper/train/loss.h"

namespace temper::rl {

enum class KlEstimator { kK1, kK2, kK3 };
enum class Importance { kToken, kSequence };
enum class RewardAggregation { kSumThenNormalize, kNormalizeThenSum };
enum class Aggregation { kTokenMean, kSeqMeanTokenSum, kSeqMeanTokenMean, kSeqMeanTokenSumNorm };

// Some episodes of one update, whole.
struct TokenBatch {
  at::Tensor logp_M;      // [tokens] log-probabilities under the policy
  at::Tensor old_logp_M;  // log-probabilities at the start of the rollout batch; a constant
  // log-probabilities under the reference model; undefined if the algorithm needs none
  at::Tensor ref_logp_M;
  at::Tensor entropy_M;     // entropy of the policy's next-token distribution, nats
  at::Tensor advantage_M;   // advantage of the token
  at::Tensor value_M;       // the critic's value before the token; undefined without a critic
  at::Tensor old_value_M;   // the critic's value at the start of the rollout batch; a constant
  at::Tensor return_M;      // the critic's target; a constant
  at::Tensor weight_M;      // weight of the token in the update's loss: Algorithm::token_weights()
  at::Tensor correction_M;  // importance weight, after truncation or masking
                            // (ImportanceCorrection); undefined: 1
  std::vector<int64_t> cu_length_C1;  // episode c has tokens [cu_length[c], cu_length[c + 1])
  double update_tokens = 0;           // sampled tokens of the whole update, over passes and ranks
};

// π_θ / π_old of each token (PPO, Schulman et al., arXiv 1707.06347, section 3).
at::Tensor importance_ratio(const TokenBatch& b);

// s_i = (π_θ(y) / π_old(y))^(1/|y|), at each token of its completion, with a gradient through each
// token: GSPO-token (Zheng et al., arXiv 2507.18071, equations 7 and 14): sg[s_i] · π_θ / sg[π_θ].
at::Tensor sequence_ratio(const TokenBatch& b);

// -min(ρA, clip(ρ, 1 - low, 1 + high) A) (PPO, equation 7). With dual_clip c > 1, where A < 0 no
// more than -cA (Ye et al., arXiv 1912.09729, equation 5); 0: none.
at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double low,
                             double high, double dual_clip = 0);
// -(A logp - β/2 (logp - old)²) (DRO, Richemond et al., arXiv 2405.19107, section 3, with the
// square of each token's log-ratio in place of the completion's).
at::Tensor direct_reward(const TokenBatch& b, double beta);
// 1 where ρ > 1 + high and A > 0, or ρ < 1 - low and A < 0.
at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                double low, double high);

// Estimators of KL(π_θ ‖ π_ref) from samples of π_θ (Schulman, "Approximating KL divergence",
// 2020), d = ref - logp: k1 = -d, k2 = d²/2, k3 = exp(d) - d - 1.
at::Tensor kl(KlEstimator estimator, const at::Tensor& logp_M, const at::Tensor& ref_logp_M);

// The weight of each token in the loss, by episode: token-mean 1 / ΣL; seq-mean-token-mean
// 1 / (C L_c); seq-mean-token-sum 1 / C; seq-mean-token-sum-norm 1 / (C max_new_tokens).
std::vector<double> aggregate(Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens);

// The term `policy`: token losses, times correction_M where other weights or a server sampled.
train::Term policy_term(const at::Tensor& value_M, const TokenBatch& b);
// Adds β KL to the loss, and its mean over tokens, `kl`, to the metrics. Nothing where β is 0.
void add_kl(train::Loss& loss, const TokenBatch& b, double beta, KlEstimator estimator);
// Adds -bonus * the mean entropy. Nothing where the bonus is 0.
void add_entropy_bonus(train::Loss& loss, const TokenBatch& b, double bonus);
// Adds the metric clip_fraction: the share of tokens outside the trust region.
void add_clip_fraction(train::Loss& loss, const at::Tensor& outside_M);

}  // namespace temper::rl
