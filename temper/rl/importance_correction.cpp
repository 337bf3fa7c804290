#include "temper/rl/importance_correction.h"

#include <ATen/ATen.h>

#include "temper/ops/pointwise.h"
#include "temper/train/policy_terms.h"

namespace temper::rl {

at::Tensor ImportanceCorrection::unbounded(const at::Tensor& old_logp_M,
                                           const at::Tensor& sampler_logp_M,
                                           std::span<const int64_t> cu_length_C1) const {
  at::Tensor difference_M = old_logp_M - sampler_logp_M;
  if (sequence) {
    const at::Tensor of_token_M = difference_M;
    difference_M = at::empty_like(of_token_M);
    for (size_t c = 0; c + 1 < cu_length_C1.size(); ++c) {
      const int64_t start = cu_length_C1[c], length = cu_length_C1[c + 1] - start;
      difference_M.narrow(0, start, length)
          .fill_(train::ordered_sum(of_token_M.narrow(0, start, length)));
    }
  }
  return ops::exp(difference_M);
}

at::Tensor ImportanceCorrection::weight(const at::Tensor& old_logp_M,
                                        const at::Tensor& sampler_logp_M,
                                        std::span<const int64_t> cu_length_C1) const {
  const at::Tensor weight_M = unbounded(old_logp_M, sampler_logp_M, cu_length_C1);
  if (!mask) return at::clamp_max(weight_M, cap);
  return at::where(outside(old_logp_M, sampler_logp_M, cu_length_C1) > 0, at::zeros_like(weight_M),
                   weight_M);
}

at::Tensor ImportanceCorrection::outside(const at::Tensor& old_logp_M,
                                         const at::Tensor& sampler_logp_M,
                                         std::span<const int64_t> cu_length_C1) const {
  const at::Tensor weight_M = unbounded(old_logp_M, sampler_logp_M, cu_length_C1);
  const bool bounded = mask && !sequence;  // on both sides
  const at::Tensor above_M = weight_M > (bounded ? high : cap);
  return (bounded ? at::logical_or(above_M, weight_M < low) : above_M).to(at::kFloat);
}

void add_mismatch(train::Loss& loss, const ImportanceCorrection& correction,
                  const at::Tensor& old_logp_M, const at::Tensor& sampler_logp_M,
                  std::span<const int64_t> cu_length_C1) {
  const double tokens = static_cast<double>(old_logp_M.numel());
  // KL(sampler ‖ old) from samples of the sampler: k3 with the roles of policy and reference.
  loss.means.push_back(
      {"mismatch_kl",
       train::ordered_sum(train::kl(train::KlEstimator::kK3, sampler_logp_M, old_logp_M)), tokens});
  loss.means.push_back(
      {"mismatch_fraction",
       train::ordered_sum(correction.outside(old_logp_M, sampler_logp_M, cu_length_C1)), tokens});
}

}  // namespace temper::rl
