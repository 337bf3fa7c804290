#include "temper/rl/algorithms/credit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "temper/base/error.h"

namespace temper::rl {
namespace {

constexpr double kCancelled = 1e-4;  // share of the summands' sizes up to which a sum is 0

constexpr double kRounded = 1e-12;  // the same, of sums that were rounded

bool are_equal(std::span<const double> rewards) {
  return std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards[0]; });
}

// One reward of the episodes that have it.
struct Scored {
  std::vector<size_t> episode;
  std::vector<double> value;
};

// A file's rewards may have been weighted as the config does not say.
void check_weights(const EpisodeGroup& group, const Episode& episode,
                   const std::map<std::string, double>& weights) {
  constexpr double kRounding = 1e-6;
  check<DataError>(!episode.rewards.empty(), "group ", group.id, ", sample ", episode.sample,
                   ": no `rewards`, which rl.reward_aggregation: normalize_then_sum normalizes one "
                   "by one; expected {\"name\": number, ..}");
  double sum = 0;
  std::string unknown;
  for (const auto& [name, value] : episode.rewards) {
    const auto weight = weights.find(name);
    sum += (weight == weights.end() ? 1 : weight->second) * value;
    if (weight == weights.end()) unknown = name;
  }
  check<DataError>(
      unknown.empty() ||
          std::abs(sum - episode.reward) <= kRounding * std::max(1.0, std::abs(episode.reward)),
      "group ", group.id, ", sample ", episode.sample, ": `reward` is ", episode.reward,
      ", its `rewards` add up to ", sum, " where `", unknown,
      "` has weight 1; list them in `rewards` with the weights that they were sampled with");
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

std::vector<double> rewards_to_go(const Episode& episode, size_t turns, double gamma,
                                  bool penalized) {
  std::vector<double> out(turns, 0);
  double rest = episode.reward, size = std::abs(rest);
  for (size_t t = 0; t < episode.turn_rewards.size(); ++t) {
    const double reward = episode.turn_rewards[t];
    rest -= reward;
    size += std::abs(reward);
    out[std::min(t, turns - 1)] += reward;
  }
  if (std::abs(rest) > kRounded * size) out.back() += rest;
  if (penalized) out.back() += episode.penalty;
  for (size_t t = turns - 1; t-- > 0;) out[t] += gamma * out[t + 1];
  return out;
}

std::vector<std::vector<double>> by_turn(const EpisodeGroup& group, double gamma,
                                         const Credit& credit, bool penalized) {
  std::vector<std::vector<double>> found;
  size_t most = 0;
  for (const Episode& episode : group.episodes) {
    found.push_back(rewards_to_go(episode, group.turns(episode).size(), gamma, penalized));
    most = std::max(most, found.back().size());
  }
  for (size_t t = 0; t < most; ++t) {
    std::vector<double> rewards;
    for (const std::vector<double>& of : found)
      if (t < of.size()) rewards.push_back(of[t]);
    const std::vector<double> advantages =
        rewards.size() > 1 ? credit(rewards) : std::vector<double>(1, 0);
    size_t next = 0;
    for (std::vector<double>& of : found)
      if (t < of.size()) of[t] = advantages[next++];
  }
  return found;
}

std::vector<double> decoupled(const EpisodeGroup& group,
                              const std::map<std::string, double>& weights, const Credit& credit,
                              bool penalized) {
  std::map<std::string, Scored> rewards;  // by name: files keep another order
  Scored penalty;
  for (size_t i = 0; i < group.episodes.size(); ++i) {
    const Episode& episode = group.episodes[i];
    check_weights(group, episode, weights);
    for (const auto& [name, value] : episode.rewards) {
      rewards[name].episode.push_back(i);
      rewards[name].value.push_back(value);
    }
    penalty.episode.push_back(i);
    penalty.value.push_back(episode.penalty);
  }
  std::vector<double> sums(group.episodes.size()), sizes(sums.size());
  const auto add = [&](const Scored& scored, double weight) {
    const std::vector<double> advantages = credit(scored.value);
    for (size_t i = 0; i < advantages.size(); ++i) {
      sums[scored.episode[i]] += weight * advantages[i];
      sizes[scored.episode[i]] += std::abs(weight * advantages[i]);
    }
  };
  for (const auto& [name, scored] : rewards) {
    const auto weight = weights.find(name);
    add(scored, weight == weights.end() ? 1 : weight->second);
  }
  if (penalized) add(penalty, 1);
  // What remains where opposite rewards cancel is the constant that deviations are divided with: a
  // batch without more would be normalized to noise.
  for (size_t i = 0; i < sums.size(); ++i)
    if (std::abs(sums[i]) <= kCancelled * sizes[i]) sums[i] = 0;
  return sums;
}

}  // namespace temper::rl
