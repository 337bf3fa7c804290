// DAPO (Yu et al., arXiv 2503.14476): GRPO with four changes. Its dynamic sampling and its overlong
// shaping are keys that the other algorithms of the family have, too, and that DAPO switches on.

#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// Section 4.1: the soft penalty covers 4096 of 20480 tokens.
constexpr int64_t kTokensPerOverlongToken = 5;

// Equation 8: 1/Σ|o_i| Σ_i Σ_t min(ρ Â, clip(ρ, 1 - ε_low, 1 + ε_high) Â), with the advantages of
// equation 9 on rewards with the penalty of equation 13.
class Dapo final : public GroupAlgorithm {
 public:
  // Section 3.1, clip-higher: ε_high > ε_low leaves unlikely tokens room to grow. Section 3.2,
  // dynamic sampling, equation 11: 0 < |{o_i : o_i is right}| < G, judged by the rewards before
  // shaping (Algorithm::keep), as lengths do not make a group worth learning from. Section 3.3,
  // token-level loss: every token of the update counts alike. No KL term (section 2.3).
  Dapo() {
    keys.epsilon_high = 0.28;
    keys.dynamic_sampling = true;
    keys.loss_aggregation = Aggregation::kTokenMean;
    keys.overlong_buffer = std::nullopt;
  }

  // Episodes of a replayed file were filtered and shaped when they were sampled.
  void prepare(const RolloutLimits& limits) override {
    if (!keys.overlong_buffer)
      keys.overlong_buffer = limits.samples ? limits.max_new_tokens / kTokensPerOverlongToken : 0;
    GroupAlgorithm::prepare(limits);
  }
};

const Registered<MakeAlgorithm> kDapo(
    &algorithms, {"dapo", &make_algorithm<Dapo>,
                  "clip-higher, token-mean loss, dynamic sampling, overlong shaping",
                  "Yu et al., arXiv 2503.14476, equations 8 to 13"});

}  // namespace
}  // namespace temper::rl
