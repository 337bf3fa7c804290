#include "temper/rl/algorithm.h"

#include <doctest/doctest.h>

#include <string>

#include "temper/base/error.h"

using namespace temper;

static const rl::Algorithm& find(const std::string& name) {
  RunConfig config;
  config.rl.algorithm = name;
  return rl::find_algorithm(config);
}

TEST_CASE("an unknown algorithm is refused with the nearest name") {
  CHECK(&find("gspo") == &rl::algorithms()[3]);
  CHECK_THROWS_WITH_AS(
      find("gppo"),
      "rl.algorithm: found `gppo`, expected grpo | dr_grpo | dapo | gspo | rloo; did you "
      "mean `grpo`?",
      ConfigError);
}

TEST_CASE("an algorithm is registered once, under a name of its own") {
  const rl::Algorithm mine{"mine", rl::leave_one_out_advantages, rl::rloo_loss, "for this test"};
  rl::register_algorithm(mine);
  CHECK((find("mine").loss == rl::rloo_loss));
  CHECK(rl::algorithms().back().name == std::string("mine"));
  CHECK_THROWS_WITH_AS(rl::register_algorithm(mine), "an algorithm `mine` is there already",
                       ConfigError);
  CHECK_THROWS_AS(rl::register_algorithm({"grpo", rl::group_advantages, rl::rloo_loss, ""}),
                  ConfigError);
}

TEST_CASE("equal rewards give advantages of exactly 0") {
  RunConfig config;
  const std::vector<double> equal(7, 0.1);  // whose mean is not 0.1 in doubles
  for (const rl::Algorithm& algorithm : rl::algorithms())
    CHECK(algorithm.advantages(config.rl, equal) == std::vector<double>(7, 0.0));
}

TEST_CASE("the overlong penalty falls from 0 to -1 over the buffer, and no further") {
  CHECK(rl::overlong_penalty(80, 100, 20) == 0);
  CHECK(rl::overlong_penalty(90, 100, 20) == -0.5);
  CHECK(rl::overlong_penalty(100, 100, 20) == -1);
  CHECK(rl::overlong_penalty(300, 100, 20) == -1);
  CHECK(rl::overlong_penalty(300, 100, 0) == 0);
}
