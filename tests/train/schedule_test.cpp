// Learning rates against transformers' (tests/golden/make_schedule_goldens.py).
#include "temper/train/optimizers/schedule.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::train;

namespace {

Json golden() { return read_json_file(golden_path("schedules.json"), size_t{1} << 24); }

// The section that the keys describe, read as a user's config is.
OptimizerSection section_of(const Json& keys) {
  OptimizerSection out;
  read_fields(parse_yaml(keys.dump(), "golden"), "optimizer", Fields::of(out));
  return out;
}

}  // namespace

TEST_CASE("schedules are transformers'") {
  for (const Json& one : golden()) {
    const std::string keys = one["keys"].dump();
    CAPTURE(keys);
    OptimizerSection config = section_of(one["keys"]);
    config.learning_rate = 0.5;
    const int64_t steps = one["steps"];
    for (int64_t step = 1; step <= steps; ++step) {
      CAPTURE(step);
      const double expected = one["rates"][static_cast<size_t>(step - 1)];
      CHECK(learning_rate(config, step, steps) == doctest::Approx(0.5 * expected).epsilon(1e-12));
    }
  }
}

// The nearest doubles, by mpmath, where widely used C libraries' cosines and powers are not.
TEST_CASE("learning rates do not depend on the C library") {
  OptimizerSection config = section_of({{"schedule", "cosine"}});
  config.learning_rate = 1;
  CHECK(learning_rate(config, 32, 105) == 0x1.998ded7d1bfe2p-1);
  CHECK(learning_rate(config, 44, 61) == 0x1.99616d79cf73ep-3);
  CHECK(learning_rate(config, 48, 70) == 0x1.f2ca882599312p-3);
  CHECK(learning_rate(config, 40, 86) == 0x1.25461e3dae66dp-1);
}

TEST_CASE("a warm-up that is a share of the run is rounded up to whole steps") {
  const OptimizerSection share = section_of({{"warmup_ratio", 0.1}}),
                         counted = section_of({{"warmup_steps", 3}});
  CHECK(warmup_steps(share, 21) == 3);
  for (int64_t step = 1; step <= 21; ++step)
    CHECK(learning_rate(share, step, 21) == learning_rate(counted, step, 21));
}

TEST_CASE("without decay_steps the last tenth decays, and never more than follows the warm-up") {
  OptimizerSection config = section_of({{"schedule", "wsd"}});
  config.learning_rate = 1;
  CHECK(learning_rate(config, 28, 30) == 1);
  CHECK(learning_rate(config, 29, 30) == doctest::Approx(0.75));
  config = section_of({{"schedule", "wsd"}, {"warmup_steps", 4}, {"decay_steps", 100}});
  config.learning_rate = 1;
  CHECK(learning_rate(config, 5, 10) == 1);
  CHECK(learning_rate(config, 8, 10) == doctest::Approx(0.5));
}

TEST_CASE("inverse_sqrt stays above its floor") {
  OptimizerSection config =
      section_of({{"schedule", "inverse_sqrt"}, {"warmup_steps", 1}, {"final_lr_fraction", 0.5}});
  config.learning_rate = 1;
  CHECK(learning_rate(config, 2, 100) == 1);
  CHECK(learning_rate(config, 100, 100) == 0.5);
}
