// What a run warns of, by its numbers.
#include "temper/rl/observer.h"

#include <doctest/doctest.h>

#include "temper/rl/algorithms/algorithm.h"
#include "tests/rl/groups.h"
#include "tests/rl/heard.h"

using namespace temper;
using namespace temper::rl;

TEST_CASE("the mean of equal numbers of turns is that number") {
  std::vector<EpisodeGroup> groups(
      1, group_of(std::vector<int64_t>(49, 2), std::vector<double>(49, 1.0)));
  for (Episode& episode : groups[0].episodes) episode.turns = 1;
  double in_parts = 0;
  for (int i = 0; i < 49; ++i) in_parts += 1.0 / 49;
  REQUIRE(in_parts != 1);  // what a sum of shares would be
  CHECK(describe(groups, *algorithms().find("grpo")()).turns_mean == 1);
}

TEST_CASE("a sampler that is far from the trainer is told, with the number") {
  tiny::Heard heard;
  Observer observer(heard, nullptr, 8);
  BatchStatistics about;
  about.groups = 1;
  about.reward_std = 1;
  observer.warn_of(about, 0, 0.05);
  CHECK(heard.warnings.empty());
  observer.warn_of(about, 0, 0.25);
  REQUIRE(heard.warnings.size() == 1);
  CHECK(heard.warnings[0].first == "mismatch");
  CHECK(heard.warnings[0].second.find("mismatch_kl is 0.25 nats per token") != std::string::npos);
  CHECK(heard.warnings[0].second.find("rollout.server") != std::string::npos);
}

TEST_CASE("a batch's extremes and quantiles are of its completions") {
  const std::vector<EpisodeGroup> groups{group_of({1, 2}, {0.5, -1}), group_of({3, 10}, {2, 0})};
  const BatchStatistics about = describe(groups, *algorithms().find("grpo")());
  CHECK(about.reward_min == -1);
  CHECK(about.reward_max == 2);
  CHECK(about.length_p50 == 2.5);
  CHECK(about.length_p95 == doctest::Approx(8.95).epsilon(1e-6));
}
