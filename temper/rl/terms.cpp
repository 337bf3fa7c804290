#include "temper/rl/terms.h"

#include <ATen/ATen.h>

#include <numeric>

namespace temper::rl {

at::Tensor importance_ratio(const CompletionBatch& b) { return at::exp(b.logp_M - b.old_logp_M); }

at::Tensor sequence_ratio(const CompletionBatch& b) {
  const at::Tensor difference_M = (b.logp_M - b.old_logp_M).detach();
  at::Tensor mean_M = at::empty_like(difference_M);
  for (size_t c = 0; c + 1 < b.start_C1.size(); ++c) {
    const int64_t start = b.start_C1[c], length = b.start_C1[c + 1] - start;
    mean_M.narrow(0, start, length).copy_(difference_M.narrow(0, start, length).mean());
  }
  return at::exp(mean_M + b.logp_M - b.logp_M.detach());
}

at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double low,
                             double high, double dual_clip) {
  at::Tensor gain_M =
      at::minimum(ratio_M * advantage_M, at::clamp(ratio_M, 1 - low, 1 + high) * advantage_M);
  if (dual_clip > 0)
    gain_M = at::where(advantage_M < 0, at::maximum(gain_M, advantage_M * dual_clip), gain_M);
  return -gain_M;
}

at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                double low, double high) {
  return at::logical_or(at::logical_and(ratio_M > 1 + high, advantage_M > 0),
                        at::logical_and(ratio_M < 1 - low, advantage_M < 0))
      .to(at::kFloat);
}

at::Tensor kl(RlSection::KlEstimator estimator, const at::Tensor& logp_M,
              const at::Tensor& ref_logp_M) {
  const at::Tensor d = ref_logp_M - logp_M;
  switch (estimator) {
    case RlSection::KlEstimator::kK1:
      return -d;
    case RlSection::KlEstimator::kK2:
      return d * d * 0.5;
    case RlSection::KlEstimator::kK3:
      break;
  }
  return at::expm1(d) - d;
}

std::vector<double> aggregate(RlSection::Aggregation how, std::span<const int64_t> length_C,
                              int64_t max_new_tokens) {
  using Aggregation = RlSection::Aggregation;
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

at::Tensor truncated_importance(const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                                double cap) {
  return at::clamp_max(at::exp(old_logp_M - sampler_logp_M), cap);
}

}  // namespace temper::rl
