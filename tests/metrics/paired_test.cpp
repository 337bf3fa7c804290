#include "temper/metrics/paired.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace temper;

TEST_CASE("paired differences are of the steps after the fork that both runs have") {
  std::vector<MetricsRow> a, b;
  for (int64_t step = 1; step <= 5; ++step) {
    MetricsRow row(step);
    row.set("loss", static_cast<double>(step));
    a.push_back(row);
    // 3: none in b. 4 and 5: 0.5 and 1.5 more.
    row.set("loss", static_cast<double>(step) + (step == 5 ? 1.5 : 0.5));
    row.set("other", 1.0);
    if (step != 3) b.push_back(row);
  }
  MetricsRow evaluated(4);
  evaluated.set("eval/loss", 2.0);
  a.push_back(evaluated);
  b.push_back(evaluated);
  const auto found = paired_differences(a, b, 2);
  REQUIRE(found.size() == 2);
  CHECK(found[0].metric == "loss");
  CHECK(found[0].pairs == 2);
  CHECK(found[0].mean_a == 4.5);
  CHECK(found[0].mean == 1);
  // The quantile 0.975 of Student's t distribution with one degree of freedom.
  CHECK(found[0].half_width == doctest::Approx(12.706204736432095 * 0.5));
  // Both have steps 4 and 5 alone: variances 0.5 and 2, 2.5² / (0.5² + 2²) degrees of freedom.
  CHECK(found[0].unpaired_half_width == doctest::Approx(6.91852283).epsilon(1e-6));
  CHECK(found[1].metric == "eval/loss");
  CHECK(found[1].mean == 0);
  CHECK(std::isnan(found[1].half_width));
}
