// Advantages of an actor and a critic, and their normalization over a batch.
#pragma once

#include <span>
#include <vector>

#include "temper/rl/episode.h"

namespace temper::rl {

// Generalized advantage estimation (Schulman et al., arXiv 1506.02438, equation 16):
// A_t = Σ_l (γλ)^l δ_{t+l}, δ_t = r_t + γ V_{t+1} - V_t, of one episode that ends after its last
// step: V is 0 there. A_t + V_t is the critic's target, the λ-return. One number a step each.
std::vector<double> generalized_advantages(std::span<const double> reward_T,
                                           std::span<const double> value_T, double gamma,
                                           double lambda);

// The mean of at least one number.
double mean_of(std::span<const double> values);

// (A - mean) / sqrt(variance + 1e-8), the variance with n - 1; of a single value, 0.
void whiten(std::span<float> advantage);
// The same over all sampled tokens of a rollout batch.
void whiten_advantages(std::span<EpisodeGroup> groups);

// 1 - Var(target - value) / Var(target): 1 where the values say it all, 0 where they say no more
// than a constant, and where the targets are one.
double explained_variance(std::span<const double> value, std::span<const double> target);

}  // namespace temper::rl
