// RLOO (Ahmadian et al., "Back to Basics", arXiv 2402.14740): REINFORCE with the mean of the other
// completions' rewards as the baseline. The importance ratio, which is 1 with a gradient at a
// batch's first update, corrects later ones; it is not clipped.
#include <ATen/ATen.h>

#include <numeric>

#include "temper/rl/group_keys.h"

namespace temper::rl {
namespace {

class Rloo final : public GroupAlgorithm {
 public:
  Rloo() : GroupAlgorithm({.beta = 0}) {}

  // Equation 8: r_i - 1/(k-1) Σ_{j≠i} r_j. Zero where all are equal, whatever the sums' rounding.
  void assign(EpisodeGroup& group) override {
    const std::vector<double> rewards = group.shaped_rewards();
    const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0),
                 others = static_cast<double>(rewards.size()) - 1;
    const bool equal =
        std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards[0]; });
    for (size_t i = 0; i < rewards.size(); ++i)
      group.set_advantage(group.episodes[i], equal ? 0 : rewards[i] - (sum - rewards[i]) / others);
  }

  // Equation 5 with that baseline: the gradient of A log π_θ.
  train::Loss loss(const TokenBatch& b) const override {
    train::Loss loss;
    loss.terms.push_back(policy_term(-keys.ratio(b) * b.advantage_M, b));
    add_kl(loss, b, keys.beta, keys.kl_estimator);
    add_entropy_bonus(loss, b, keys.entropy_bonus);
    add_clip_fraction(loss, at::zeros_like(b.advantage_M));
    return loss;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_rloo() { return std::make_unique<Rloo>(); }

}  // namespace temper::rl
