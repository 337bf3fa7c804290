#include "temper/rl/difficulty.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::rl;

TEST_CASE("skip passes over prompts that are always or never solved") {
  const DifficultySection section{DifficultySection::Mode::kSkip, 0, 1};
  Difficulty difficulty(section, 3);
  CHECK(difficulty.takes("a:1", 0));
  for (const auto& [success, takes] :
       std::map<double, bool>{{-1, false}, {0, false}, {0.25, true}, {1, false}, {2, false}}) {
    difficulty.learn("a:1", success);
    CHECK(difficulty.takes("a:1", 7) == takes);
    CHECK(difficulty.takes("a:2", 7));
  }
}

TEST_CASE("weigh draws prompts in the middle most often, and the same ones again") {
  const DifficultySection section{DifficultySection::Mode::kWeigh, 0, 2};
  Difficulty difficulty(section, 3);
  for (const auto& [success, share] :
       std::map<double, double>{{0, 0.1}, {0.2, 0.36}, {1, 1}, {1.8, 0.36}, {5, 0.1}}) {
    difficulty.learn("a:1", success);
    int taken = 0;
    for (int64_t key = 0; key < 10000; ++key) taken += difficulty.takes("a:1", key);
    CHECK(taken / 10000.0 == doctest::Approx(share).epsilon(0.1));
  }
  Difficulty restored(section, 3), other(section, 4);
  restored.restore(difficulty.to_json(), "state");
  other.restore(difficulty.to_json(), "state");
  int differ = 0;
  for (int64_t key = 0; key < 200; ++key) {
    CHECK(restored.takes("a:1", key) == difficulty.takes("a:1", key));
    differ += other.takes("a:1", key) != difficulty.takes("a:1", key);
  }
  CHECK(differ > 0);
  CHECK_THROWS_AS(restored.restore({{"a:1", "x"}}, "state"), DataError);
  CHECK_THROWS_AS(restored.restore(3, "state"), DataError);
}

TEST_CASE("without a mode every prompt is taken") {
  const DifficultySection section;
  Difficulty difficulty(section, 3);
  difficulty.learn("a:1", 1);
  CHECK(difficulty.takes("a:1", 0));
  CHECK(!difficulty.any());
}
