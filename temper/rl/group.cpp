#include "temper/rl/group.h"

#include <algorithm>

namespace temper::rl {

void shape_and_compare(const RunConfig& config, const Algorithm& algorithm,
                       std::span<Rollout> group) {
  std::vector<double> rewards;
  for (Rollout& r : group) {
    r.reward +=
        overlong_penalty(r.length(), config.rollout.max_new_tokens, config.rl.overlong_buffer);
    rewards.push_back(r.reward);
  }
  const std::vector<double> advantages = algorithm.advantages(config.rl, rewards);
  for (size_t i = 0; i < group.size(); ++i) group[i].advantage = advantages[i];
}

bool without_signal(std::span<const Rollout> group) {
  return std::all_of(group.begin(), group.end(),
                     [&](const Rollout& r) { return r.reward == group[0].reward; });
}

}  // namespace temper::rl
