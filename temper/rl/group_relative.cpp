// GRPO (Shao et al., DeepSeekMath, arXiv 2402.03300), and by its keys Dr. GRPO (Liu et al., arXiv
// 2503.20783: no division by the standard deviation, sums over a constant), DAPO (Yu et al., arXiv
// 2503.14476: ε_high > ε_low, mean over tokens) and GSPO (Zheng et al., arXiv 2507.18071: the ratio
// of the whole completion).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "temper/rl/algorithm.h"

namespace temper::rl {

// DeepSeekMath, section 4.1.2: Â_i = (r_i - mean(r)) / std(r).
std::vector<double> group_advantages(const RlSection& rl, std::span<const double> rewards) {
  const double count = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double r : rewards) squares += (r - mean) * (r - mean);
  const double deviation = rewards.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  std::vector<double> advantages;
  if (all_equal(rewards)) return std::vector<double>(rewards.size());  // exactly, whatever rounding
  for (const double r : rewards)
    advantages.push_back(rl.scale_rewards ? (r - mean) / (deviation + 1e-6) : r - mean);
  return advantages;
}

// DeepSeekMath, equation 3: min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) - β D_KL(π_θ ‖ π_ref), maximised.
Loss clipped_policy_loss(const RlSection& rl, const CompletionBatch& b) {
  const at::Tensor ratio_M =
      rl.importance == RlSection::Importance::kSequence ? sequence_ratio(b) : importance_ratio(b);
  Loss loss;
  at::Tensor surrogate_M =
      clipped_surrogate(ratio_M, b.advantage_M, rl.epsilon_low, rl.epsilon_high, rl.dual_clip);
  if (b.correction_M.defined()) surrogate_M = surrogate_M * b.correction_M;
  loss.terms.push_back({"policy", 1, surrogate_M});
  if (rl.beta > 0)
    loss.terms.push_back({"kl", rl.beta, kl(rl.kl_estimator, b.logp_M, b.ref_logp_M)});
  if (rl.entropy_bonus > 0) loss.terms.push_back({"entropy", -rl.entropy_bonus, b.entropy_M});
  loss.clipped_M =
      outside_trust_region(ratio_M.detach(), b.advantage_M, rl.epsilon_low, rl.epsilon_high);
  return loss;
}

double overlong_penalty(int64_t length, int64_t max_new_tokens, int64_t buffer) {
  if (buffer == 0 || length <= max_new_tokens - buffer) return 0;
  return std::max(
      -1.0, static_cast<double>(max_new_tokens - buffer - length) / static_cast<double>(buffer));
}

}  // namespace temper::rl
