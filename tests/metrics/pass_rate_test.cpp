#include "temper/metrics/pass_rate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace temper;
using doctest::Approx;

TEST_CASE("pass@k is one minus the share of k-subsets without a right sample") {
  CHECK(pass_at_k(5, 0, 1) == 0);
  CHECK(pass_at_k(5, 2, 1) == Approx(0.4));
  CHECK(pass_at_k(5, 2, 3) == Approx(1 - 1.0 / 10));  // C(3, 3) of C(5, 3)
  CHECK(pass_at_k(5, 2, 4) == 1);
  CHECK(pass_at_k(8, 1, 8) == 1);
  CHECK(pass_at_k(100, 50, 10) == Approx(0.9994065).epsilon(1e-6));
}

TEST_CASE("intervals: the normal one, and Wilson's where nothing varies") {
  const std::vector<double> values{0, 1, 1, 0, 1, 1, 1, 1};
  const Interval normal = confidence_interval(values);
  CHECK(normal.mean == Approx(0.75));
  CHECK(normal.low == Approx(0.75 - 1.959964 * 0.4629100 / std::sqrt(8.0)).epsilon(1e-5));
  const Interval zero = confidence_interval(std::vector<double>(10, 0.0));
  CHECK(zero.low == 0);
  CHECK(zero.high == Approx(0.2775328).epsilon(1e-5));
  CHECK(confidence_interval(std::vector<double>{-3, -3}).low == -3);
}
