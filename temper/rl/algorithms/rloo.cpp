// RLOO (Ahmadian et al., "Back to Basics", arXiv 2402.14740): REINFORCE with the mean of the other
// completions' rewards as the baseline. The importance ratio, which is 1 with a gradient at a
// batch's first update, corrects later ones; it is not clipped.
#include <ATen/ATen.h>

#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

class Rloo final : public GroupAlgorithm {
 public:
  std::vector<std::string> unused_keys() const override {
    return {"epsilon_low", "epsilon_high", "dual_clip", "scale_rewards"};
  }
  // Equation 5 with the leave-one-out baseline: the gradient of A log π_θ. No KL term by default.
  train::Loss loss(const TokenBatch& b) const override {
    train::Loss loss;
    loss.terms.push_back(policy_term(-keys.ratio(b) * b.advantage_M, b));
    add_kl(loss, b, keys.beta, keys.kl_estimator);
    add_entropy_bonus(loss, b, keys.entropy_bonus);
    add_clip_fraction(loss, at::zeros_like(b.advantage_M));
    return loss;
  }

 protected:
  // Equation 8.
  std::vector<double> credit(std::span<const double> rewards) const override {
    return leave_one_out(rewards);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_rloo() { return std::make_unique<Rloo>(); }

}  // namespace temper::rl
