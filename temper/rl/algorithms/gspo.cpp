// GSPO (Zheng et al., "Group Sequence Policy Optimization", arXiv 2507.18071): the importance ratio
// and its clipping are those of a whole completion, as its reward is.
#include "temper/rl/algorithms/group_keys.h"

namespace temper::rl {
namespace {

// Equation 6: Â_i = (r_i - mean(r)) / std(r). Equation 5, in its token-level form of equations 13
// and 14: the ratio is s_i = (π_θ(y_i) / π_old(y_i))^(1/|y_i|) at every token, with a gradient
// through each of them.
class Gspo final : public GroupAlgorithm {
 public:
  // Section 5.1: the clipping ranges 3e-4 and 4e-4; they bound a mean over tokens, so they are
  // small. No KL term.
  Gspo() {
    keys.importance = Importance::kSequence;
    keys.epsilon_low = 3e-4;
    keys.epsilon_high = 4e-4;
  }
};

const Registered<MakeAlgorithm> kGspo(
    &algorithms,
    {"gspo", &make_algorithm<Gspo>, "importance ratio and clipping of whole completions",
     "Zheng et al., arXiv 2507.18071, equations 5 to 7, 13 and 14"});

}  // namespace
}  // namespace temper::rl
