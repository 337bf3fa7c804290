// Advantages from comparing the rewards of a prompt's completions with each other. Those that a
// critic gives are in gae.h.
#pragma once

#include <span>
#include <vector>

namespace temper::rl {

// Group-relative advantages (DeepSeekMath, arXiv 2402.03300, section 4.1.2): r - mean(r), divided
// by std(r) + 1e-6 (ddof 1) where `scale`. Zeros where all are equal.
std::vector<double> group_relative(std::span<const double> rewards, bool scale);

// Leave-one-out advantages (RLOO, Ahmadian et al., arXiv 2402.14740, equation 8): of k rewards,
// r_i - 1/(k-1) Σ_{j≠i} r_j. Zeros where all are equal.
std::vector<double> leave_one_out(std::span<const double> rewards);

}  // namespace temper::rl
