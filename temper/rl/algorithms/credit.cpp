#include "temper/rl/algorithms/credit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace temper::rl {
namespace {

bool are_equal(std::span<const double> rewards) {
  return std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards[0]; });
}

}  // namespace

std::vector<double> group_relative(std::span<const double> rewards, bool scale) {
  std::vector<double> advantages(rewards.size());
  if (are_equal(rewards)) return advantages;  // exactly zero, whatever the mean's rounding
  const double count = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double r : rewards) squares += (r - mean) * (r - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  for (size_t i = 0; i < rewards.size(); ++i)
    advantages[i] = scale ? (rewards[i] - mean) / (deviation + 1e-6) : rewards[i] - mean;
  return advantages;
}

std::vector<double> leave_one_out(std::span<const double> rewards) {
  std::vector<double> advantages(rewards.size());
  if (are_equal(rewards)) return advantages;  // exactly zero, whatever the sum's rounding
  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0),
               others = static_cast<double>(rewards.size()) - 1;
  for (size_t i = 0; i < rewards.size(); ++i)
    advantages[i] = rewards[i] - (sum - rewards[i]) / others;
  return advantages;
}

}  // namespace temper::rl
