#include "temper/train/policy_terms.h"

#include <ATen/ATen.h>

#include "temper/ops/pointwise.h"

namespace temper::train {

at::Tensor importance_ratio(const at::Tensor& logp_M, const at::Tensor& old_logp_M) {
  return ops::exp(logp_M - old_logp_M);
}

at::Tensor sequence_ratio(const at::Tensor& logp_M, const at::Tensor& mean_M) {
  // The difference, which is 0, first: added to a small mean, logp would round it.
  return ops::exp(mean_M + (logp_M - logp_M.detach()));
}

at::Tensor clipped_surrogate(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                             const RatioBounds& bounds, double dual_clip) {
  at::Tensor gain_M =
      at::minimum(ratio_M * advantage_M, at::clamp(ratio_M, bounds.low, bounds.high) * advantage_M);
  if (dual_clip > 0)
    gain_M = at::where(advantage_M < 0, at::maximum(gain_M, advantage_M * dual_clip), gain_M);
  return -gain_M;
}

at::Tensor soft_gate(const at::Tensor& ratio_M, const at::Tensor& advantage_M, double positive,
                     double negative) {
  const at::Tensor tau_M =
      at::full_like(advantage_M, negative).masked_fill(advantage_M > 0, positive);
  return -(ops::sigmoid(tau_M * (ratio_M - 1)) * 4 / tau_M) * advantage_M;
}

at::Tensor clipped_importance(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                              const at::Tensor& logp_M, const RatioBounds& bounds) {
  return -at::clamp(ratio_M.detach(), bounds.low, bounds.high) * advantage_M * logp_M;
}

at::Tensor direct_reward(const at::Tensor& logp_M, const at::Tensor& old_logp_M,
                         const at::Tensor& advantage_M, double beta) {
  const at::Tensor log_ratio_M = logp_M - old_logp_M;
  return log_ratio_M * log_ratio_M * (beta / 2) - advantage_M * logp_M;
}

at::Tensor outside_trust_region(const at::Tensor& ratio_M, const at::Tensor& advantage_M,
                                const RatioBounds& bounds) {
  return at::logical_or(at::logical_and(ratio_M > bounds.high, advantage_M > 0),
                        at::logical_and(ratio_M < bounds.low, advantage_M < 0))
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

}  // namespace temper::train
