// GMPO (Zhao et al., "Geometric-Mean Policy Optimization", arXiv 2507.20673): a completion's
// importance ratio is the geometric mean of its tokens' ratios, each of which is clipped by itself.
#include <ATen/ATen.h>

#include <cmath>

#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

class Gmpo final : public GroupAlgorithm {
 public:
  // Section 3: the ratio is clipped to (e^-0.4, e^0.4), so the keys hold logarithms. No KL term.
  Gmpo() { keys.epsilon_low = keys.epsilon_high = 0.4; }
  std::vector<std::string> unused_keys() const override { return {"importance", "dual_clip"}; }

  // Equation 4: 1/G Σ_i (Π_t min(ρ^sgn(Â), clip(ρ, e^-ε, e^ε)^sgn(Â)))^(sgn(Â)/|o_i|) Â, with the
  // gradient through each token's own term, as in GSPO.
  train::Loss loss(const TokenBatch& b) const override {
    const train::RatioBounds bounds{-keys.epsilon_low, keys.epsilon_high};  // of log ρ
    const at::Tensor log_ratio_M = b.logp_M - b.old_logp_M,
                     clamped_M = at::clamp(log_ratio_M, bounds.low, bounds.high);
    const at::Tensor clipped_M = at::where(b.advantage_M > 0, at::minimum(log_ratio_M, clamped_M),
                                           at::maximum(log_ratio_M, clamped_M));
    const at::Tensor ratio_M = train::sequence_ratio(clipped_M, b.completion_means(clipped_M));
    return keys.loss_of(-ratio_M * b.advantage_M,
                        train::outside_trust_region(log_ratio_M.detach(), b.advantage_M, bounds), b,
                        keys.beta);
  }
};

const Registered<MakeAlgorithm> kGmpo(
    &algorithms,
    {"gmpo", &make_algorithm<Gmpo>,
     "importance ratio of a completion: the geometric mean of its tokens' clipped ones",
     "Zhao et al., arXiv 2507.20673, equation 4"});

}  // namespace
}  // namespace temper::rl
