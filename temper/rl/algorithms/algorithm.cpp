#include "temper/rl/algorithms/algorithm.h"

#include <nlohmann/json.hpp>

namespace temper::rl {

void Algorithm::assign_batch(std::span<EpisodeGroup> groups) {
  for (EpisodeGroup& group : groups) assign(group);
}

Json Algorithm::state() const { return {}; }

Registry<MakeAlgorithm>& algorithms() {
  static Registry<MakeAlgorithm> table("algorithm");
  return table;
}

}  // namespace temper::rl
