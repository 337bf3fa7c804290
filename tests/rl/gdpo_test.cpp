// Rewards that are normalized one by one (rl.reward_aggregation: normalize_then_sum), against TRL's
// own computation (tests/golden/make_rl_goldens.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/observer.h"
#include "tests/golden.h"
#include "tests/rl/groups.h"

using namespace temper;

namespace {

using NamedRewards = std::vector<std::pair<std::string, double>>;

std::unique_ptr<rl::Algorithm> gdpo(const std::map<std::string, double>& weights = {},
                                    const std::string& name = "gdpo") {
  auto made = rl::algorithms().find(name)();
  group_keys(*made).reward_aggregation = rl::RewardAggregation::kNormalizeThenSum;
  made->prepare({100, true, weights});
  return made;
}

double weighted_sum(const NamedRewards& rewards, const std::map<std::string, double>& weights) {
  double sum = 0;
  for (const auto& [name, value] : rewards)
    sum += value * (weights.contains(name) ? weights.at(name) : 1);
  return sum;
}

rl::EpisodeGroup group_with(const std::vector<NamedRewards>& rewards,
                            const std::map<std::string, double>& weights = {}) {
  std::vector<double> sums;
  for (const NamedRewards& one : rewards) sums.push_back(weighted_sum(one, weights));
  rl::EpisodeGroup group = rl::group_of(std::vector<int64_t>(rewards.size(), 2), sums);
  for (size_t i = 0; i < rewards.size(); ++i) group.episodes[i].rewards = rewards[i];
  return group;
}

std::vector<float> all_advantages(const std::vector<rl::EpisodeGroup>& groups) {
  std::vector<float> out;
  for (const rl::EpisodeGroup& group : groups)
    for (const rl::Segment& segment : group.segments)
      if (segment.sampled) out.push_back(segment.advantage.at(0));
  return out;
}

std::string refusal_of(rl::Algorithm& algorithm, rl::EpisodeGroup group) {
  try {
    algorithm.assign_batch({&group, 1});
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("advantages of rewards that are normalized one by one are TRL's") {
  const Json golden = read_json_file(golden_path("rl.json"), size_t{1} << 24);
  for (const Json& one : golden["aggregations"]) {
    std::map<std::string, double> weights;
    for (size_t k = 0; k < one["weights"].size(); ++k)
      weights[str("r", k)] = one["weights"][k].get<double>();
    const size_t size = one["group_size"].get<size_t>();
    std::vector<rl::EpisodeGroup> groups;
    for (size_t first = 0; first < one["rewards"].size(); first += size) {
      std::vector<NamedRewards> rewards(size);
      for (size_t i = 0; i < size; ++i)
        for (size_t k = 0; k < weights.size(); ++k)
          if (const Json& value = one["rewards"][first + i][k]; !value.is_null())
            rewards[i].emplace_back(str("r", k), value.get<double>());
      groups.push_back(group_with(rewards, weights));
    }
    gdpo(weights)->assign_batch(groups);
    const std::vector<float> found = all_advantages(groups);
    REQUIRE(found.size() == one["advantages"].size());
    for (size_t i = 0; i < found.size(); ++i)
      CHECK(found[i] == doctest::Approx(one["advantages"][i].get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("rewards of one sum are told apart, and count as a learning signal") {
  // Sums of 1 throughout: GRPO learns nothing.
  const std::vector<rl::EpisodeGroup> level{
      group_with({{{"a", 1}, {"b", 0}}, {{"a", 0}, {"b", 1}}, {{"a", 0.5}, {"b", 0.5}}}),
      group_with({{{"a", 1}, {"b", 0}}, {{"a", 1}, {"b", 0}}, {{"a", 0}, {"b", 1}}})};
  const auto grpo = rl::algorithms().find("grpo")();
  CHECK_FALSE(grpo->keep(level[0]));
  CHECK(rl::describe(level, *grpo).zero_std_groups == 2);
  // With two rewards of equal weight the normalized ones cancel; with others they do not.
  CHECK_FALSE(gdpo()->keep(level[0]));
  const auto weighs = gdpo({{"a", 2}, {"b", 1}});
  CHECK(weighs->keep(level[0]));
  CHECK(rl::describe(level, *weighs).zero_std_groups == 0);
  std::vector<rl::EpisodeGroup> groups = level;
  weighs->assign_batch(groups);
  const std::vector<float> found = all_advantages(groups);
  CHECK(found[0] > 0.5F);
  CHECK(found[0] == doctest::Approx(-found[1]));
  CHECK(std::abs(found[2]) < 1e-6F);
}

TEST_CASE("nothing that differs: advantages of exactly 0") {
  std::vector<rl::EpisodeGroup> groups(2, group_with(std::vector<NamedRewards>(7, {{"a", 0.1}})));
  gdpo()->assign_batch(groups);
  CHECK(all_advantages(groups) == std::vector<float>(14, 0.0F));
}

TEST_CASE("the order of the rewards' names changes no bit") {
  std::vector<NamedRewards> rewards{{{"z", 0.3}, {"a", 0.1}, {"k", 0.7}},
                                    {{"z", 0.2}, {"a", 0.9}, {"k", 0.1}},
                                    {{"z", 0.8}, {"a", 0.4}, {"k", 0.6}}};
  std::vector<rl::EpisodeGroup> here{group_with(rewards)};
  for (NamedRewards& one : rewards) std::sort(one.begin(), one.end());
  std::vector<rl::EpisodeGroup> sorted{group_with(rewards)};
  gdpo()->assign_batch(here);
  gdpo()->assign_batch(sorted);
  CHECK(all_advantages(here) == all_advantages(sorted));
}

TEST_CASE("a penalty is one reward more") {
  std::vector<rl::EpisodeGroup> shaped{
      group_with({{{"a", 1}}, {{"a", 0}}, {{"a", 0}}, {{"a", 1}}})};
  const std::vector<double> penalties{0, 0, -0.25, -0.5};
  std::vector<NamedRewards> named{{{"a", 1}}, {{"a", 0}}, {{"a", 0}}, {{"a", 1}}};
  for (size_t i = 0; i < penalties.size(); ++i) {
    shaped[0].episodes[i].penalty = penalties[i];
    named[i].emplace_back("penalty", penalties[i]);
  }
  std::vector<rl::EpisodeGroup> expected{group_with(named)};
  gdpo()->assign_batch(shaped);
  gdpo()->assign_batch(expected);
  CHECK(all_advantages(shaped) == all_advantages(expected));
}

TEST_CASE("rloo's baseline is of each reward, too") {
  // Leave-one-out is linear: only the batch's normalization is new.
  std::vector<rl::EpisodeGroup> groups{
      group_with({{{"a", 1}, {"b", 0}}, {{"a", 0}, {"b", 0.5}}, {{"a", 0}, {"b", 0}}})};
  gdpo({}, "rloo")->assign_batch(groups);
  const std::vector<double> sums = rl::leave_one_out(std::vector<double>{1, 0.5, 0});
  const std::vector<double> expected = rl::group_relative(sums, true);
  const std::vector<float> found = all_advantages(groups);
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
}

TEST_CASE("rows without rewards by name, or with unknown weights, are refused") {
  rl::EpisodeGroup bare = group_with({{{"a", 1}}, {}});
  CHECK(refusal_of(*gdpo(), bare).starts_with("group 0, sample 1: no `rewards`"));
  rl::EpisodeGroup weighted = group_with({{{"a", 1}, {"b", 1}}, {{"a", 0}, {"b", 1}}}, {{"b", 3}});
  CHECK(refusal_of(*gdpo({{"a", 1}}), weighted).find("`reward` is 4, its `rewards` add up to 2") !=
        std::string::npos);
  CHECK(refusal_of(*gdpo({{"b", 3}}), weighted).empty());
  // Who lists all of them may weigh a file's rewards anew.
  CHECK(refusal_of(*gdpo({{"a", 1}, {"b", 9}}), weighted).empty());
}
