#include "temper/rl/algorithms/terms.h"

#include <ATen/ATen.h>

#include <numeric>

#include "temper/ops/pointwise.h"

namespace temper::rl {

at::Tensor importance_ratio(const TokenBatch& b) { return ops::exp(b.logp_M - b.old_logp_M); }

at::Tensor sequence_ratio(const TokenBatch& b) {
  const at::Tensor difference_M = (b.logp_M - b.old_logp_M).detach();
  at::Tensor mean_M = at::empty_like(difference_M);
  for (size_t c = 0; c + 1 < b.cu_length_C1.size(); ++c) {
    const int64_t start = b.cu_length_C1[c], length = b.cu_length_C1[c + 1] - start;
    mean_M.narrow(0, start, length)
        .fill_(train::ordered_sum(difference_M.narrow(0, start, length)) /
               static_cast<double>(length));
  }
  // The difference, which is 0, first: added to a small mean, logp would round it.
  return ops::exp(mean_M + (b.logp_M - b.logp_M.detach()));
}

at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double low,
                             double high, double dual_clip) {
  at::Tensor gain_M =
      at::minimum(ratio_M * advantage_M, at::clamp(ratio_M, 1 - low, 1 + high) * advantage_M);
  if (dual_clip > 0)
    gain_M = at::where(advantage_M < 0, at::maximum(gain_M, advantage_M * dual_clip), gain_M);
  return -gain_M;
}

at::Tensor direct_reward(const TokenBatch& b, double beta) {
  const at::Tensor log_ratio_M = b.logp_M - b.old_logp_M;
  return log_ratio_M * log_ratio_M * (beta / 2) - b.advantage_M * b.logp_M;
}

at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                double low, double high) {
  return at::logical_or(at::logical_and(ratio_M > 1 + high, advantage_M > 0),
                        at::logical_and(ratio_M < 1 - low, advantage_M < 0))
      .to(at::kFloat);
}

at::Tensor kl(KlEstimator estimator, const at::Tensor& logp_M, const at::Tensor& ref_logp_M) {
  const at::Tensor d = ref_logp_M - logp_M;
  switch (estimator) {
    case KlEstimator::kK1:
      return -d;
    case KlEstimator::kK2:
      return d * d * 0.5;
    case KlEstimator::kK3:
      break;
  }
  return ops::expm1(d) - d;
}

std::vector<double> aggregate(Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens) {
  const double completions = static_cast<double>(length_C.size());
  const double tokens =
      static_cast<double>(std::accumulate(length_C.begin(), length_C.end(), int64_t{0}));
  std::vector<double> weight_C;
  for (const int64_t length : length_C) {
    switch (how) {
      case Aggregation::kTokenMean:
        weight_C.push_back(1 / tokens);
        break;
      case Aggregation::kSeqMeanTokenMean:
        weight_C.push_back(1 / (completions * static_cast<double>(length)));
        break;
      case Aggregation::kSeqMeanTokenSum:
        weight_C.push_back(1 / completions);
        break;
      case Aggregation::kSeqMeanTokenSumNorm:
        weight_C.push_back(1 / (completions * static_cast<double>(max_new_tokens)));
        break;
    }
  }
  return weight_C;
}

train::Term policy_term(const at::Tensor& value_M, const TokenBatch& b) {
  return {.name = "policy",
          .value = b.correction_M.defined() ? value_M * b.correction_M : value_M,
          .weight = b.weight_M};
}

void add_kl(train::Loss& loss, const TokenBatch& b, double beta, KlEstimator estimator) {
  if (beta == 0) return;
  const at::Tensor kl_M = kl(estimator, b.logp_M, b.ref_logp_M);
  loss.terms.push_back({.name = "kl", .coefficient = beta, .value = kl_M, .weight = b.weight_M});
  loss.means.push_back({"kl", train::ordered_sum(kl_M), static_cast<double>(kl_M.numel())});
}

void add_entropy_bonus(train::Loss& loss, const TokenBatch& b, double bonus) {
  if (bonus == 0) return;
  loss.terms.push_back(
      {.name = "entropy", .coefficient = -bonus, .value = b.entropy_M, .weight = b.weight_M});
}

void add_clip_fraction(train::Loss& loss, const at::Tensor& outside_M) {
  loss.means.push_back(
      {"clip_fraction", train::ordered_sum(outside_M), static_cast<double>(outside_M.numel())});
}

}  // namespace temper::rl
