// GRPO (Shao et al., "DeepSeekMath", arXiv 2402.03300): a completion is compared with the others of
// its prompt, and a KL term holds the policy near the reference model.
#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// Section 4.1.2, outcome supervision: Â_i = (r_i - mean(r)) / std(r), at every token of o_i.
// Equation 3: 1/G Σ_i 1/|o_i| Σ_t min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) - β D_KL(π_θ ‖ π_ref),
// with ρ = π_θ(o_t) / π_old(o_t) and the KL by equation 4 (k3).
class Grpo final : public GroupAlgorithm {
 public:
  Grpo() { keys.beta = 0.04; }
};

const Registered<MakeAlgorithm> kGrpo(
    &algorithms,
    {"grpo", &make_algorithm<Grpo>, "group-relative advantages, KL to the reference",
     "Shao et al. (DeepSeekMath), arXiv 2402.03300, section 4.1.2, equations 3 and 4"});

}  // namespace
}  // namespace temper::rl
