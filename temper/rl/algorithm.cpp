#include "temper/rl/algorithm.h"

#include "temper/base/error.h"

namespace temper::rl {

std::span<const Algorithm> algorithms() {
  static constexpr Algorithm table[] = {
      {"grpo", group_advantages, clipped_policy_loss,
       "group-relative advantages, KL to the reference (arXiv 2402.03300)"},
      {"dr_grpo", group_advantages, clipped_policy_loss,
       "GRPO without its biases of length and difficulty (arXiv 2503.20783)"},
      {"dapo", group_advantages, clipped_policy_loss,
       "clip-higher, token-mean loss, dynamic sampling, overlong shaping (arXiv 2503.14476)"},
      {"gspo", group_advantages, clipped_policy_loss,
       "importance ratio and clipping of whole completions (arXiv 2507.18071)"},
      {"rloo", leave_one_out_advantages, rloo_loss,
       "REINFORCE with a leave-one-out baseline (arXiv 2402.14740)"},
  };
  return table;
}

const Algorithm& find_algorithm(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return algorithm;
  throw ConfigError(temper::str("rl.algorithm: unknown algorithm `", name, "`"));
}

}  // namespace temper::rl
