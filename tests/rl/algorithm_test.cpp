// Algorithms: their table, credit and shaping.
#include "temper/rl/algorithms/algorithm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>

#include "temper/base/error.h"
#include "temper/rl/algorithms/group_keys.h"
#include "tests/rl/groups.h"

using namespace temper;

namespace {

std::unique_ptr<rl::Algorithm> make(const std::string& name, int64_t max_new_tokens = 100) {
  auto made = rl::algorithms().find(name)();
  made->prepare({max_new_tokens, true});
  return made;
}

std::vector<float> advantages(rl::EpisodeGroup& group) {
  std::vector<float> out;
  for (const rl::Segment& segment : group.segments)
    if (segment.sampled) out.push_back(segment.advantage.at(0));
  return out;
}

// Those that compare the completions of a prompt.
std::vector<std::string> group_algorithms() {
  std::vector<std::string> names;
  for (const auto& entry : rl::algorithms().list())
    if (entry.value()->needs().min_group_size > 1 && !entry.name.starts_with("test_"))
      names.push_back(entry.name);
  return names;
}

}  // namespace

TEST_CASE("an unknown algorithm is refused with the nearest name") {
  try {
    rl::algorithms().find("grppo", "rl.algorithm");
    FAIL("found");
  } catch (const ConfigError& e) {
    const std::string message = e.what();
    CHECK(message.starts_with("rl.algorithm: unknown algorithm `grppo`; expected one of "));
    for (const std::string& name : rl::algorithms().names())
      CHECK(message.find(name) != message.npos);
    CHECK(message.ends_with("did you mean `grpo`?"));
  }
}

TEST_CASE("an algorithm is registered once, under a name of its own") {
  const rl::MakeAlgorithm maker = rl::algorithms().find("rloo");
  rl::algorithms().add({"test_mine", maker, "for this test"});
  CHECK((rl::algorithms().find("test_mine") == maker));
  CHECK_THROWS_AS(rl::algorithms().add({"test_mine", maker, ""}), ConfigError);
  CHECK_THROWS_AS(rl::algorithms().add({"grpo", maker, ""}), ConfigError);
}

TEST_CASE("equal rewards give advantages of exactly 0") {
  for (const std::string& name : group_algorithms()) {
    CAPTURE(name);
    // 0.1, whose mean is not 0.1 in doubles.
    rl::EpisodeGroup group = rl::group_of(std::vector<int64_t>(7, 3), std::vector<double>(7, 0.1));
    make(name)->assign(group);
    CHECK(advantages(group) == std::vector<float>(7, 0.0F));
  }
}

TEST_CASE("credit is the paper's") {
  const std::vector<double> rewards{1, 0, 0, 0.5};  // mean 0.375, standard deviation 0.478714
  const double deviation = std::sqrt((0.625 * 0.625 + 2 * 0.375 * 0.375 + 0.125 * 0.125) / 3);
  for (const std::string& name : group_algorithms()) {
    CAPTURE(name);
    rl::EpisodeGroup group = rl::group_of({3, 5, 2, 1}, rewards);
    const auto algorithm = make(name);
    algorithm->assign(group);
    const bool scaled = rl::group_keys(*algorithm).scale_rewards;
    const std::vector<float> found = advantages(group);
    for (size_t i = 0; i < rewards.size(); ++i) {
      double expected = (rewards[i] - 0.375) / (scaled ? deviation + 1e-6 : 1);
      if (name == "rloo") expected = rewards[i] - (1.5 - rewards[i]) / 3;
      CHECK(found[i] == doctest::Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("reinforce_plus_plus pays the KL token by token and normalizes over the batch") {
  std::vector<rl::EpisodeGroup> groups{rl::group_of({2}, {1}), rl::group_of({1}, {0})};
  // KL_t = old - ref (k1): 0.5 and -0.25 in the first episode, 1 in the second.
  groups[0].segments[1].old_logp = {-1.0F, -2.0F};
  groups[0].segments[1].ref_logp = {-1.5F, -1.75F};
  groups[1].segments[1].old_logp = {-1.0F};
  groups[1].segments[1].ref_logp = {-2.0F};
  const auto algorithm = make("reinforce_plus_plus");
  CHECK(algorithm->needs().reference);
  CHECK(algorithm->needs().min_group_size == 1);
  algorithm->assign_batch(groups);
  const double beta = 0.01;
  const std::vector<double> raw{1 - beta * (0.5 - 0.25), 1 + beta * 0.25, -beta};
  const double mean = (raw[0] + raw[1] + raw[2]) / 3;
  double squares = 0;
  for (const double a : raw) squares += (a - mean) * (a - mean);
  const double deviation = std::sqrt(squares / 2 + 1e-8);
  CHECK(groups[0].segments[1].advantage[0] == doctest::Approx((raw[0] - mean) / deviation));
  CHECK(groups[0].segments[1].advantage[1] == doctest::Approx((raw[1] - mean) / deviation));
  CHECK(groups[1].segments[1].advantage[0] == doctest::Approx((raw[2] - mean) / deviation));
}

TEST_CASE("the overlong penalty falls from 0 to -1 over the buffer, and no further") {
  CHECK(rl::overlong_penalty(80, 100, 20) == 0);
  CHECK(rl::overlong_penalty(90, 100, 20) == -0.5);
  CHECK(rl::overlong_penalty(100, 100, 20) == -1);
  CHECK(rl::overlong_penalty(300, 100, 20) == -1);
  CHECK(rl::overlong_penalty(300, 100, 0) == 0);
}

TEST_CASE("the overlong penalty counts what the limit counts, an environment's tokens too") {
  rl::EpisodeGroup group = rl::group_of({30, 90}, {0, 1});
  group.segments.push_back({.parent = 1, .tokens = std::vector<int32_t>(60, 6)});
  group.episodes[0].path.push_back(3);
  make("dapo")->shape(group);
  CHECK(group.episodes[0].penalty == -0.5);
  CHECK(group.episodes[1].penalty == -0.5);
}

TEST_CASE("dapo keeps groups by their rewards before shaping, and shapes a group once") {
  const auto dapo = make("dapo");
  CHECK(dapo->max_refills() == 10);
  // Wrong throughout: lengths, and with them penalties, are no reason to learn.
  rl::EpisodeGroup wrong = rl::group_of({10, 90, 100}, {0, 0, 0});
  CHECK_FALSE(dapo->keep(wrong));
  dapo->shape(wrong);
  CHECK(wrong.episodes[2].penalty == -1);
  CHECK_FALSE(dapo->keep(wrong));
  rl::EpisodeGroup mixed = rl::group_of({10, 90, 100}, {0, 1, 0});
  CHECK(dapo->keep(mixed));
  for (int twice = 0; twice < 2; ++twice) {
    dapo->shape(mixed);
    CHECK((mixed.shaped_rewards() == std::vector<double>{0, 0.5, -1}));
    CHECK(mixed.episodes[1].reward == 1);
  }
  // A reward that a penalty would make equal to the others still tells them apart.
  rl::EpisodeGroup level = rl::group_of({10, 100}, {0, 1});
  dapo->shape(level);
  CHECK((level.shaped_rewards() == std::vector<double>{0, 0}));
  CHECK(dapo->keep(level));
}

TEST_CASE("a buffer longer than the completions may be is refused") {
  const auto grpo = make("grpo");
  group_keys(*grpo).overlong_buffer = 101;
  CHECK_THROWS_AS(grpo->prepare({100, true}), ConfigError);
}
