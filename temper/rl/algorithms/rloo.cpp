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
    return keys.loss_of(-keys.ratio(b) * b.advantage_M, at::zeros_like(b.advantage_M), b,
                        keys.beta);
  }

 protected:
  // Equation 8.
  std::vector<double> credit(std::span<const double> rewards) const override {
    return leave_one_out(rewards);
  }
};

const Registered<MakeAlgorithm> kRloo(&algorithms,
                                      {"rloo", &make_algorithm<Rloo>,
                                       "REINFORCE with a leave-one-out baseline",
                                       "Ahmadian et al., arXiv 2402.14740, equations 5 and 8"});

}  // namespace
}  // namespace temper::rl
