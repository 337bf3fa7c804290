#include "temper/rl/quantile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper::rl {

float interpolated_quantile(std::vector<float> values, double q) {
  if (std::any_of(values.begin(), values.end(), [](float x) { return std::isnan(x); }))
    return std::numeric_limits<float>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const float last = static_cast<float>(values.size() - 1);
  const float rank = std::min(static_cast<float>(q) * last, last);
  const float weight = rank - std::floor(rank);
  const float below = values[static_cast<size_t>(std::floor(rank))],
              above = values[static_cast<size_t>(std::ceil(rank))];
  // Each formula is exact at its own end.
  return weight < 0.5F ? below + weight * (above - below) : above - (above - below) * (1 - weight);
}

}  // namespace temper::rl
