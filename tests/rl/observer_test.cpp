// What a run warns of, by its numbers.
#include "temper/rl/rollout/observer.h"

#include <doctest/doctest.h>

#include "tests/rl/heard.h"

using namespace temper;
using namespace temper::rl;

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
