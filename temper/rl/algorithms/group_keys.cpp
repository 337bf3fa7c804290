#include "temper/rl/algorithms/group_keys.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "temper/base/error.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rl::Importance> = {"token", "sequence"};
template <>
inline constexpr std::array enum_names<rl::TurnCredit> = {"episode", "turn"};
template <>
inline constexpr std::array enum_names<rl::RewardAggregation> = {"sum_then_normalize",
                                                                 "normalize_then_sum"};

}  // namespace temper

namespace temper::rl {
namespace {

constexpr double kRounding = 1e-9;  // standard deviations

}  // namespace

void GroupKeys::fields(Fields& f) {
  PolicyKeys::fields(
      f, "coefficient of the KL to the reference model; 0: no reference model is loaded");
  f.add("importance", importance, "importance ratio per token, or per completion (sequence, GSPO)");
  f.add("scale_rewards", scale_rewards,
        "divide advantages by the standard deviation of the group's rewards (+ 1e-6)");
  f.add("reward_aggregation", reward_aggregation,
        "sum_then_normalize: the weighted sum of the rewards is compared within the group; "
        "normalize_then_sum: each reward by itself, and the weighted sum of the results is "
        "normalized over the rollout batch (GDPO)");
  f.add("turn_credit", turn_credit,
        "in an environment: all tokens of an episode have one advantage (episode), or those of a "
        "turn that of the rewards from it on, compared with the same turn of the group's other "
        "episodes (turn); `rewards` come with the last turn");
  f.add("turn_gamma", turn_gamma, "under turn_credit: turn, the discount factor per turn",
        between(0, 1));
  f.add("dynamic_sampling", dynamic_sampling,
        "replace groups whose rewards are all equal by groups of further prompts (DAPO)");
  f.add("max_refills", max_refills,
        "maximum number of rounds of dynamic sampling per rollout batch", at_least(0));
  f.add("overlong_buffer", overlong_buffer,
        "soft overlong penalty (DAPO): rises to 1 over the last overlong_buffer tokens of "
        "max_new_tokens; 0: none",
        at_least(0));
}

at::Tensor GroupKeys::ratio(const TokenBatch& b) const {
  if (importance == Importance::kToken) return train::importance_ratio(b.logp_M, b.old_logp_M);
  return train::sequence_ratio(b.logp_M, b.completion_means(b.logp_M - b.old_logp_M));
}

void GroupAlgorithm::prepare(const RolloutLimits& limits) {
  Algorithm::prepare(limits);
  if (!keys.overlong_buffer) keys.overlong_buffer = 0;
  check<ConfigError>(*keys.overlong_buffer <= limits.max_new_tokens, "rl.overlong_buffer: found ",
                     *keys.overlong_buffer, ", expected at most rollout.max_new_tokens, ",
                     limits.max_new_tokens);
  check<ConfigError>(!decouples() || keys.turn_credit == TurnCredit::kEpisode,
                     "rl.turn_credit: found turn with rl.reward_aggregation: normalize_then_sum, "
                     "expected episode: turns are compared by the sum of their rewards");
}

std::vector<std::vector<double>> GroupAlgorithm::turns(const EpisodeGroup& group,
                                                       bool penalized) const {
  return by_turn(
      group, keys.turn_gamma, [&](std::span<const double> one) { return credit(one); }, penalized);
}

// Lengths count what rollout.max_new_tokens limits, the environment's tokens included.
void GroupAlgorithm::shape(EpisodeGroup& group) const {
  if (*keys.overlong_buffer == 0) return;
  for (Episode& episode : group.episodes)
    episode.penalty = overlong_penalty(std::ssize(group.completion(episode)),
                                       limits_.max_new_tokens, *keys.overlong_buffer);
}

std::vector<double> GroupAlgorithm::advantages(const EpisodeGroup& group, bool penalized) const {
  return decoupled(
      group, limits_.reward_weights, [&](std::span<const double> one) { return credit(one); },
      penalized);
}

// Rewards that differ may cancel in their sum; and equal sums may be of rewards that differ.
bool GroupAlgorithm::keep(const EpisodeGroup& group) const {
  if (keys.turn_credit == TurnCredit::kTurn) {
    const std::vector<std::vector<double>> found = turns(group, false);
    return std::any_of(found.begin(), found.end(), [](const std::vector<double>& of) {
      return std::any_of(of.begin(), of.end(), [](double a) { return a != 0; });
    });
  }
  if (!decouples()) return Algorithm::keep(group);
  const std::vector<double> sums = advantages(group, false);
  return std::any_of(sums.begin(), sums.end(), [](double a) { return a != 0; });
}

void GroupAlgorithm::assign(EpisodeGroup& group) {
  if (keys.turn_credit == TurnCredit::kTurn) {
    const std::vector<std::vector<double>> found = turns(group, true);
    for (size_t i = 0; i < found.size(); ++i) {
      Episode& episode = group.episodes[i];
      episode.token_credit = true;
      const std::vector<std::vector<int32_t>> said = group.turns(episode);
      for (size_t t = 0; t < said.size(); ++t)
        for (const int32_t s : said[t]) {
          Segment& segment = group.segments[static_cast<size_t>(s)];
          segment.advantage.assign(segment.tokens.size(), static_cast<float>(found[i][t]));
        }
    }
    return;
  }
  const std::vector<double> found =
      decouples() ? advantages(group, true) : credit(group.shaped_rewards());
  for (size_t i = 0; i < found.size(); ++i) group.set_advantage(group.episodes[i], found[i]);
}

// GDPO, equation 6: (A - mean(A)) / std(A) over all completions of the batch.
void GroupAlgorithm::assign_batch(std::span<EpisodeGroup> groups) {
  if (!decouples()) return Algorithm::assign_batch(groups);
  std::vector<double> all;
  for (const EpisodeGroup& group : groups)
    for (const double sum : advantages(group, true)) all.push_back(sum);
  std::vector<double> normalized = group_relative(all, /*scale=*/true);
  for (double& a : normalized)
    if (std::abs(a) < kRounding) a = 0;  // the mean of sums that add up to 0
  size_t next = 0;
  for (EpisodeGroup& group : groups)
    for (const Episode& episode : group.episodes) group.set_advantage(episode, normalized[next++]);
}

double overlong_penalty(int64_t length, int64_t max_new_tokens, int64_t buffer) {
  if (buffer == 0 || length <= max_new_tokens - buffer) return 0;
  return std::max(
      -1.0, static_cast<double>(max_new_tokens - buffer - length) / static_cast<double>(buffer));
}

GroupKeys& group_keys(Algorithm& algorithm) {
  auto* found = dynamic_cast<GroupAlgorithm*>(&algorithm);
  check<ConfigError>(found != nullptr, "rl.algorithm: this algorithm has its own keys");
  return found->keys;
}

}  // namespace temper::rl
