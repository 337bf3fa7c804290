// GRPO (Shao et al., "DeepSeekMath", arXiv 2402.03300): a completion is compared with the others of
// its prompt, and a KL term holds the policy near the reference model.
#include "temper/rl/group_keys.h"

namespace temper::rl {
namespace {

class Grpo final : public GroupAlgorithm {
 public:
  Grpo() : GroupAlgorithm({.beta = 0.04}) {}

  // Section 4.1.2, outcome supervision: Â_i = (r_i - mean(r)) / std(r), at every token of o_i.
  void assign(EpisodeGroup& group) override { assign_group_relative(group); }

  // Equation 3: 1/G Σ_i 1/|o_i| Σ_t min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) - β D_KL(π_θ ‖ π_ref),
  // with ρ = π_θ(o_t) / π_old(o_t) and the KL by equation 4 (k3).
  train::Loss loss(const TokenBatch& b) const override { return clipped_loss(keys.ratio(b), b); }
};

}  // namespace

std::unique_ptr<Algorithm> make_grpo() { return std::make_unique<Grpo>(); }

}  // namespace temper::rl
