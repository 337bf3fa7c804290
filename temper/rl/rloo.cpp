// RLOO (Ahmadian et al., "Back to basics", arXiv 2402.14740): REINFORCE with the mean of the other
// completions' rewards as the baseline. The importance ratio, which is 1 with a gradient at a
// batch's first update, corrects later ones; it is not clipped.
#include <ATen/ATen.h>

#include <numeric>

#include "temper/rl/algorithm.h"

namespace temper::rl {

// Equation 8: r_i - 1/(k-1) Σ_{j≠i} r_j.
std::vector<double> leave_one_out_advantages(const RlSection&, std::span<const double> rewards) {
  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0),
               others = static_cast<double>(rewards.size()) - 1;
  std::vector<double> advantages;
  if (all_equal(rewards)) return std::vector<double>(rewards.size());
  for (const double r : rewards) advantages.push_back(others > 0 ? r - (sum - r) / others : 0.0);
  return advantages;
}

Loss rloo_loss(const RlSection& rl, const CompletionBatch& b) {
  const at::Tensor ratio_M =
      rl.importance == RlSection::Importance::kSequence ? sequence_ratio(b) : importance_ratio(b);
  Loss loss;
  at::Tensor surrogate_M = -ratio_M * b.advantage_M;
  if (b.correction_M.defined()) surrogate_M = surrogate_M * b.correction_M;
  loss.terms.push_back({"policy", 1, surrogate_M});
  if (rl.beta > 0)
    loss.terms.push_back({"kl", rl.beta, kl(rl.kl_estimator, b.logp_M, b.ref_logp_M)});
  if (rl.entropy_bonus > 0) loss.terms.push_back({"entropy", -rl.entropy_bonus, b.entropy_M});
  loss.clipped_M = at::zeros_like(b.advantage_M);
  return loss;
}

}  // namespace temper::rl
