// Quantiles as torch has them.
#include "temper/rl/quantile.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace temper;

TEST_CASE("a quantile is torch's, with ties, of one number and at both ends") {
  for (const size_t count : {1, 2, 3, 10, 101, 1000}) {
    std::vector<float> values;
    for (size_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>((i * 7919) % 97) * 0.37F);
    for (const double q : {0.0, 0.2, 1 - 0.2, 0.5, 1 - 0.3, 0.999, 1.0}) {
      CAPTURE(count);
      CAPTURE(q);
      CHECK(rl::interpolated_quantile(values, q) ==
            doctest::Approx(at::quantile(at::tensor(values), q).item<float>()).epsilon(1e-6));
    }
  }
  CHECK(std::isnan(rl::interpolated_quantile({1, std::nanf(""), 2}, 0.5)));
}
