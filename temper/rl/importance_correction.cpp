#include "temper/rl/importance_correction.h"

#include <ATen/ATen.h>

#include "temper/ops/pointwise.h"
#include "temper/train/policy_terms.h"

namespace temper::rl {

at::Tensor ImportanceCorrection::weight(const at::Tensor& old_logp_M,
                                        const at::Tensor& sampler_logp_M) const {
  const at::Tensor weight_M = ops::exp(old_logp_M - sampler_logp_M);
  if (!mask) return at::clamp_max(weight_M, cap);
  const at::Tensor below_M = weight_M < low;
  const at::Tensor above_M = weight_M > high;
  return at::where(at::logical_or(below_M, above_M), at::zeros_like(weight_M), weight_M);
}

at::Tensor ImportanceCorrection::outside(const at::Tensor& old_logp_M,
                                         const at::Tensor& sampler_logp_M) const {
  const at::Tensor weight_M = ops::exp(old_logp_M - sampler_logp_M);
  const at::Tensor above_M = weight_M > (mask ? high : cap);
  return (mask ? at::logical_or(above_M, weight_M < low) : above_M).to(at::kFloat);
}

void add_mismatch(train::Loss& loss, const ImportanceCorrection& correction,
                  const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M) {
  const double tokens = static_cast<double>(old_logp_M.numel());
  // KL(sampler ‖ old) from samples of the sampler: k3 with the roles of policy and reference.
  loss.means.push_back(
      {"mismatch_kl",
       train::ordered_sum(train::kl(train::KlEstimator::kK3, sampler_logp_M, old_logp_M)), tokens});
  loss.means.push_back({"mismatch_fraction",
                        train::ordered_sum(correction.outside(old_logp_M, sampler_logp_M)),
                        tokens});
}

}  // namespace temper::rl
