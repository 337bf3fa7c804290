// Groups of episodes for tests of algorithms.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/rl/episode.h"

namespace temper::rl {

// A prompt with completions of these lengths and rewards.
inline EpisodeGroup group_of(const std::vector<int64_t>& lengths,
                             const std::vector<double>& rewards) {
  EpisodeGroup group;
  group.segments.push_back({.tokens = {3, 4}});
  for (size_t i = 0; i < lengths.size(); ++i) {
    group.segments.push_back({.parent = 0,
                              .tokens = std::vector<int32_t>(static_cast<size_t>(lengths[i]), 5),
                              .sampled = true});
    group.episodes.push_back({.sample = static_cast<int64_t>(i),
                              .path = {static_cast<int32_t>(i) + 1},
                              .reward = rewards[i],
                              .rewards = {{"exact", rewards[i]}}});
  }
  return group;
}

}  // namespace temper::rl
