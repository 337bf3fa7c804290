// GSPO (Zheng et al., "Group Sequence Policy Optimization", arXiv 2507.18071): the importance ratio
// and its clipping are those of a whole completion, as its reward is.
#include "temper/rl/group_keys.h"

namespace temper::rl {
namespace {

class Gspo final : public GroupAlgorithm {
 public:
  // Section 5.1: the clipping ranges 3e-4 and 4e-4; they bound a mean over tokens, so they are
  // small.
  Gspo()
      : GroupAlgorithm({.beta = 0,
                        .epsilon_low = 3e-4,
                        .epsilon_high = 4e-4,
                        .importance = Importance::kSequence}) {}

  // Equation 6: Â_i = (r_i - mean(r)) / std(r).
  void assign(EpisodeGroup& group) override { assign_group_relative(group); }

  // Equation 5, in its token-level form of equations 13 and 14: the ratio is
  // s_i = (π_θ(y_i) / π_old(y_i))^(1/|y_i|) at every token, with a gradient through each of them.
  train::Loss loss(const TokenBatch& b) const override { return clipped_loss(keys.ratio(b), b); }
};

}  // namespace

std::unique_ptr<Algorithm> make_gspo() { return std::make_unique<Gspo>(); }

}  // namespace temper::rl
