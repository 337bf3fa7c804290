// CISPO (MiniMax, "MiniMax-M1", arXiv 2506.13585): REINFORCE whose importance weights are clipped
// instead of its updates, so that tokens whose probability changed much still contribute to the
// gradient.
#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

class Cispo final : public GroupAlgorithm {
 public:
  // Section 3.1: no lower bound, no KL term, every token of the update counts alike. The upper
  // bound is not published; 5 is that of ScaleRL (Khatri et al., arXiv 2510.13786).
  Cispo() {
    keys.epsilon_low = 1;  // a ratio is never below 0
    keys.epsilon_high = 4;
    keys.loss_aggregation = Aggregation::kTokenMean;
  }
  std::vector<std::string> unused_keys() const override { return {"dual_clip"}; }

  // Equations 4 and 5: 1/Σ|o_i| Σ_i Σ_t sg(clip(ρ, 1 - ε_low, 1 + ε_high)) Â log π_θ, with GRPO's
  // advantages.
  train::Loss loss(const TokenBatch& b) const override {
    const at::Tensor ratio_M = keys.ratio(b).detach();
    return keys.loss_of(train::clipped_importance(ratio_M, b.advantage_M, b.logp_M, keys.bounds()),
                        train::outside_trust_region(ratio_M, b.advantage_M, keys.bounds()), b,
                        keys.beta);
  }
};

const Registered<MakeAlgorithm> kCispo(
    &algorithms,
    {"cispo", &make_algorithm<Cispo>, "REINFORCE with clipped importance weights, token-mean loss",
     "MiniMax, arXiv 2506.13585, equations 4 and 5; the bound of Khatri et al., arXiv 2510.13786"});

}  // namespace
}  // namespace temper::rl
