// GDPO (Liu et al., "Group reward-Decoupled Normalization Policy Optimization", arXiv 2601.05242):
// GRPO for several rewards. Each is compared within the group by itself, so that completions with
// different rewards of one sum get different advantages.
#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// Equations 4 to 6: A_k = (r_k - mean(r_k)) / std(r_k) for each reward of a group, A = Σ_k w_k A_k,
// Â = (A - mean(A)) / std(A) over the batch (credit.h), in GRPO's objective without its KL term.
class Gdpo final : public GroupAlgorithm {
 public:
  Gdpo() { keys.reward_aggregation = RewardAggregation::kNormalizeThenSum; }
};

const Registered<MakeAlgorithm> kGdpo(&algorithms,
                                      {"gdpo", &make_algorithm<Gdpo>,
                                       "GRPO with every reward normalized by itself, then summed",
                                       "Liu et al., arXiv 2601.05242, equations 4 to 6"});

}  // namespace
}  // namespace temper::rl
