#include "temper/rl/algorithms/gae.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"

namespace temper::rl {
namespace {

constexpr double kConstant = 1e-6;  // relative deviation of float32 numbers that are one

struct Moments {
  double mean = 0, squares = 0;  // squares: Σ (x - mean)²
};

template <class At>
Moments moments(size_t count, const At& at) {
  Moments m;
  for (size_t i = 0; i < count; ++i) m.mean += at(i) / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) m.squares += (at(i) - m.mean) * (at(i) - m.mean);
  return m;
}

}  // namespace

// Backwards: A_t = δ_t + γλ A_{t+1}.
std::vector<double> generalized_advantages(std::span<const double> reward_T,
                                           std::span<const double> value_T, double gamma,
                                           double lambda) {
  check(reward_T.size() == value_T.size(), reward_T.size(), " rewards and ", value_T.size(),
        " values");
  std::vector<double> advantage_T(reward_T.size());
  double next_value = 0, next_advantage = 0;
  for (size_t t = reward_T.size(); t-- > 0;) {
    const double delta = reward_T[t] + gamma * next_value - value_T[t];
    advantage_T[t] = next_advantage = delta + gamma * lambda * next_advantage;
    next_value = value_T[t];
  }
  return advantage_T;
}

double mean_of(std::span<const double> values) {
  return moments(values.size(), [&](size_t i) { return values[i]; }).mean;
}

void whiten(std::span<float> advantage) {
  const Moments m =
      moments(advantage.size(), [&](size_t i) { return static_cast<double>(advantage[i]); });
  const double others = static_cast<double>(advantage.size()) - 1;
  const double deviation = std::sqrt((others > 0 ? m.squares / others : 0) + 1e-8);
  for (float& a : advantage) a = static_cast<float>((a - m.mean) / deviation);
}

void whiten_advantages(std::span<EpisodeGroup> groups) {
  std::vector<float> all;
  const auto each = [&](const auto& visit) {
    for (EpisodeGroup& group : groups)
      for (Segment& segment : group.segments)
        for (float& a : segment.advantage) visit(a);
  };
  each([&](float& a) { all.push_back(a); });
  whiten(all);
  size_t t = 0;
  each([&](float& a) { a = all[t++]; });
}

double explained_variance(std::span<const double> value, std::span<const double> target) {
  const double all = moments(target.size(), [&](size_t i) { return target[i]; }).squares;
  double largest = 0;
  for (const double r : target) largest = std::max(largest, std::abs(r));
  if (all <= kConstant * kConstant * largest * largest * static_cast<double>(target.size()))
    return 0;
  const double rest =
      moments(target.size(), [&](size_t i) { return target[i] - value[i]; }).squares;
  return 1 - rest / all;
}

}  // namespace temper::rl
