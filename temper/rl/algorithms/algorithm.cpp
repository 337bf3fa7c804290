#include "temper/rl/algorithms/algorithm.h"

#include <nlohmann/json.hpp>

namespace temper::rl {

void Algorithm::assign_batch(std::span<EpisodeGroup> groups) {
  for (EpisodeGroup& group : groups) assign(group);
}

void Algorithm::prepare_batch(std::span<EpisodeGroup> groups) const {
  for (EpisodeGroup& group : groups) {
    shape(group);
    for (Episode& episode : group.episodes)
      if (!reads_turn_rewards()) episode.turn_rewards.clear();
  }
}

Json Algorithm::state() const { return {}; }

Registry<MakeAlgorithm>& algorithms() {
  static Registry<MakeAlgorithm> table("algorithm");
  return table;
}

}  // namespace temper::rl
