#include "temper/metrics/pass_rate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace temper;
using doctest::Approx;

TEST_CASE("the interval of equal values does not depend on how many there are") {
  for (const int64_t n : {3, 7, 10, 20, 100, 300}) {
    const std::vector<double> ones(static_cast<size_t>(n), 1.0), thirds(ones.size(), 1.0 / 3);
    const Interval all = confidence_interval(ones), some = confidence_interval(thirds);
    CAPTURE(n);
    CHECK(all.mean == 1);
    CHECK(all.high == 1);
    CHECK(
        all.low ==
        doctest::Approx(static_cast<double>(n) / (static_cast<double>(n) + 3.8415)).epsilon(1e-3));
    CHECK(some.low < 1.0 / 3 - 0.1 / std::sqrt(static_cast<double>(n)));
  }
}

TEST_CASE("pass@k is one minus the share of k-subsets without a right sample") {
  CHECK(pass_at_k(5, 0, 1) == 0);
  CHECK(pass_at_k(5, 2, 1) == Approx(0.4));
  CHECK(pass_at_k(5, 2, 3) == Approx(1 - 1.0 / 10));  // C(3, 3) of C(5, 3)
  CHECK(pass_at_k(5, 2, 4) == 1);
  CHECK(pass_at_k(8, 1, 8) == 1);
  CHECK(pass_at_k(100, 50, 10) == Approx(0.9994065).epsilon(1e-6));
}

TEST_CASE("intervals: Wilson's for shares, Student's for other values") {
  const Interval share = confidence_interval(std::vector<double>{0, 1, 1, 0, 1, 1, 1, 1});
  CHECK(share.mean == Approx(0.75));
  CHECK(share.low == Approx(0.4093).epsilon(1e-3));
  CHECK(share.high == Approx(0.9285).epsilon(1e-3));
  const Interval zero = confidence_interval(std::vector<double>(10, 0.0));
  CHECK(zero.low == 0);
  CHECK(zero.high == Approx(0.2775328).epsilon(1e-5));
  std::vector<double> almost(300, 1.0);
  almost[0] = 0;
  CHECK(confidence_interval(almost).high < 1);
  // Shares that vary little are surer than as many coins.
  const Interval calm = confidence_interval(std::vector<double>{0.5, 0.6, 0.4, 0.5, 0.55, 0.45});
  CHECK(calm.high - calm.low == Approx(2 * 1.959964 * 0.0707107 / std::sqrt(6.0)).epsilon(0.02));
  // Quantiles of a table: 3.182446 with 3 degrees of freedom, 12.706205 with 1, 1.984217 with 99.
  const Interval student = confidence_interval(std::vector<double>{-1, 0, 2, 3});
  CHECK(student.low == Approx(1 - 3.182446 * 1.8257419 / 2).epsilon(1e-6));
  CHECK(student.high == Approx(1 + 3.182446 * 1.8257419 / 2).epsilon(1e-6));
  const Interval two = confidence_interval(std::vector<double>{-1, 2});
  CHECK(two.high - two.mean == Approx(12.706205 * 1.5).epsilon(1e-6));
  std::vector<double> hundred;
  for (int i = 0; i < 100; ++i) hundred.push_back(i % 2 == 0 ? -1 : 1);
  CHECK(confidence_interval(hundred).high == Approx(1.984217 * std::sqrt(1.0 / 99)).epsilon(1e-6));
  CHECK(confidence_interval(std::vector<double>{-3, -3}).low == -3);
  // One value says nothing of how far others lie.
  const Interval one = confidence_interval(std::vector<double>{-3});
  CHECK(one.mean == -3);
  CHECK_FALSE(one.is_known());
  CHECK(two.is_known());
}
