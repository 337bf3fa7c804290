// What is done to the completions of one prompt once they are judged, sampled now or read from a
// file.
#pragma once

#include <span>

#include "temper/rl/algorithm.h"
#include "temper/rl/rollout.h"

namespace temper::rl {

// Adds the penalty for length to the rewards (rl.overlong_buffer), then sets the advantages.
void shape_and_compare(const RunConfig& config, const Algorithm& algorithm,
                       std::span<Rollout> group);

// Whether all rewards are equal: there is nothing to learn from the group.
bool without_signal(std::span<const Rollout> group);

}  // namespace temper::rl
