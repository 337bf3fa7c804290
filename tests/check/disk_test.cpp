#include "temper/check/memory/disk.h"

#include <doctest/doctest.h>

#include <limits>

#include "temper/train/sft/sft.h"
#include "tests/check/tiny.h"

using namespace temper;
using namespace temper::checks;

namespace {
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
}

TEST_CASE("sums and products end at the largest number") {
  CHECK(saturated_sum(2, 3) == 5);
  CHECK(saturated_sum(kMost, 1) == kMost);
  CHECK(saturated_product(kMost / 2, 2) == kMost - 1);
  CHECK(saturated_product(kMost / 2, 3) == kMost);
  CHECK(quotient_up(7, 7) == 1);
  CHECK(quotient_up(8, 7) == 2);
  CHECK(quotient_up(kMost, 2) == kMost / 2 + 1);
}

TEST_CASE("the disk grows with the steps, and a number of steps without end needs all of it") {
  train::SftConfig config;
  RunShape run = tiny::run();
  const DiskPlan one = plan_disk(run, config, 1), two = plan_disk(run, config, 2);
  CHECK(two.left_bytes() > one.left_bytes());
  CHECK(two.left_bytes() - one.left_bytes() == two.peak - one.peak);  // lines of metrics alone
  config.train.save_every = 1;
  config.train.keep_checkpoints = kMost;
  run.disk = {.rollouts = kMost, .rollout_file = kMost};
  const DiskPlan most = plan_disk(run, config, kMost);
  CHECK(most.peak == kMost);
  CHECK(most.left_bytes() == kMost);
  for (const auto& [name, bytes] : most.left) CHECK(bytes > 0);
}
