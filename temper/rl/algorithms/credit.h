// Advantages from comparing the rewards of a prompt's completions with each other. Those that a
// critic gives are in gae.h.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "temper/rl/episode.h"

namespace temper::rl {

// Group-relative advantages (DeepSeekMath, arXiv 2402.03300, section 4.1.2): r - mean(r), divided
// by std(r) + 1e-6 (ddof 1) where `scale`. Zeros where all are equal.
std::vector<double> group_relative(std::span<const double> rewards, bool scale);

// Leave-one-out advantages (RLOO, Ahmadian et al., arXiv 2402.14740, equation 8): of k rewards,
// r_i - 1/(k-1) Σ_{j≠i} r_j. Zeros where all are equal.
std::vector<double> leave_one_out(std::span<const double> rewards);

// What each turn of an episode leads to: the sum of the rewards from it on, each discounted by
// gamma a turn. What Episode::reward has beyond the turns' rewards comes with the last of `turns`
// turns, as do those of further turns. `penalized`: with Episode::penalty.
std::vector<double> rewards_to_go(const Episode& episode, size_t turns, double gamma,
                                  bool penalized);

// The advantages of one reward in a group.
using Credit = std::function<std::vector<double>(std::span<const double> rewards)>;

// The advantages of each episode's turns [episodes][turns]: rewards_to_go, compared by `credit`
// among the episodes that have a turn of this number; 0 where that is one alone.
std::vector<std::vector<double>> by_turn(const EpisodeGroup& group, double gamma,
                                         const Credit& credit, bool penalized);

// Reward-decoupled advantages (GDPO, Liu et al., arXiv 2601.05242, equations 4 and 5) of a group's
// episodes, before their normalization over the batch: Σ_k w_k credit(r_k), in the order of the
// names; exactly 0 where they cancel. An episode without a reward that others have is left out of
// that reward's comparison.
// `weights` by name; a reward that is not among them has weight 1. `penalized`: penalties are one
// reward more, of weight 1. Throws DataError for an episode without rewards, and where weights are
// missing and the rewards do not add up to Episode::reward.
std::vector<double> decoupled(const EpisodeGroup& group,
                              const std::map<std::string, double>& weights, const Credit& credit,
                              bool penalized);

}  // namespace temper::rl
