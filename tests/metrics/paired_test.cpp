#include "temper/metrics/paired.h"

#include <doctest/doctest.h>

#include <cmath>

#include "temper/base/random.h"

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
  CHECK_FALSE(found[0].is_constant);
  CHECK(found[1].is_constant);
  CHECK(found[1].metric == "eval/loss");
  CHECK(found[1].mean == 0);
  CHECK(std::isnan(found[1].half_width));
}

namespace {

// The share of series whose 95 % interval contains the true mean difference, 0: differences of
// `steps` values of a stationary autoregressive process of order 1.
double coverage(double correlation, int steps, double PairedDifference::* half_width) {
  constexpr int kSeries = 1000;
  int covered = 0;
  for (uint64_t series = 0; series < kSeries; ++series) {
    const RandomStream random(7, RandomPurpose::kPairs, series);
    uint64_t drawn = 0;
    const double spread = 1 / std::sqrt(1 - correlation * correlation);
    double a = spread * random.normal(drawn++), b = spread * random.normal(drawn++);
    std::vector<std::pair<double, double>> pairs;
    for (int t = 0; t < steps; ++t) {
      pairs.emplace_back(a, b);
      a = correlation * a + random.normal(drawn++);
      b = correlation * b + random.normal(drawn++);
    }
    const PairedDifference found = paired_difference("x", pairs);
    covered += std::abs(found.mean) <= found.*half_width;
  }
  return covered / double{kSeries};
}

}  // namespace

TEST_CASE("intervals of autocorrelated series cover what they say") {
  const auto is_near = [](double covered, double least) {
    CAPTURE(covered);
    CHECK(covered >= least);
    CHECK(covered <= 0.97);
  };
  const auto independent = &PairedDifference::half_width;
  const auto series = &PairedDifference::series_half_width;
  is_near(coverage(0, 30, independent), 0.93);
  for (const int steps : {20, 100, 300}) {
    CAPTURE(steps);
    is_near(coverage(0, steps, series), 0.93);
    is_near(coverage(0.5, steps, series), 0.925);
    is_near(coverage(0.7, steps, series), 0.91);
    CHECK(coverage(0.7, steps, independent) < 0.7);
  }
}

TEST_CASE("a series' interval is that of its first cosine terms") {
  // 8 values: 0.4 * 8^(2/3) is 1.6, so one term, and Student's t with one degree of freedom.
  const double values[] = {1, 3, 2, 5, 4, 4, 7, 6};
  std::vector<std::pair<double, double>> pairs;
  double term = 0;
  for (int t = 0; t < 8; ++t) {
    pairs.emplace_back(0, values[t]);
    term += (values[t] - 4) * std::cos(std::acos(-1.0) * (t + 0.5) / 8);
  }
  const PairedDifference found = paired_difference("x", pairs);
  CHECK(found.mean == 4);
  CHECK(found.series_half_width ==
        doctest::Approx(12.706204736432095 * std::abs(term) * std::sqrt(2.0 / 8 / 8)));
  CHECK(paired_difference("x", {{1, 2}, {1, 2}}).is_constant);
  CHECK_FALSE(paired_difference("x", {{1, 2}}).is_constant);
  CHECK_FALSE(paired_difference("x", {{1, 1}, {2, 3}}).is_constant);
}
