// Dr. GRPO (Liu et al., "Understanding R1-Zero-like training", arXiv 2503.20783): GRPO without two
// biases. Dividing by the group's standard deviation favours prompts that are almost always or
// almost never solved; dividing by a completion's own length favours long wrong answers.
#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// Section 3.2: Ã_i = r_i - mean(r), and 1/G Σ_i Σ_t min(ρ Ã, clip(ρ, 1 - ε, 1 + ε) Ã), over
// max_new_tokens.
class DrGrpo final : public GroupAlgorithm {
 public:
  // No KL term; sums over a constant, the token budget, instead of means over lengths.
  DrGrpo() {
    keys.loss_aggregation = Aggregation::kSeqMeanTokenSumNorm;
    keys.scale_rewards = false;
  }
};

const Registered<MakeAlgorithm> kDrGrpo(&algorithms,
                                        {"dr_grpo", &make_algorithm<DrGrpo>,
                                         "GRPO without its biases of length and difficulty",
                                         "Liu et al., arXiv 2503.20783, section 3.2"});

}  // namespace
}  // namespace temper::rl
