#include "temper/metrics/pass_rate.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {
constexpr double kZ = 1.959963984540054;  // standard normal quantile of a 95 % interval
}

double pass_at_k(int64_t samples, int64_t correct, int64_t k) {
  if (samples - correct < k) return 1;
  double all_wrong = 1;
  for (int64_t i = samples - correct + 1; i <= samples; ++i)
    all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

Interval confidence_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const double n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double v : values) mean += v;
  mean /= n;  // not term by term: that of equal values would be another number
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double variance = n > 1 ? squares / (n - 1) / n : 0;  // variance of the mean
  const bool share =
      std::all_of(values.begin(), values.end(), [](double v) { return v >= 0 && v <= 1; });
  if (!share) return {mean, mean - kZ * std::sqrt(variance), mean + kZ * std::sqrt(variance)};
  // The number of values 0 and 1 whose mean would be as certain.
  const double like = squares > 1e-18 * n ? n * n * mean * (1 - mean) / squares : n,
               spread = kZ * kZ / like;
  const double scale = 1 / (1 + spread), centre = (mean + spread / 2) * scale;
  const double half = std::sqrt(spread * (mean * (1 - mean) + spread / 4)) * scale;
  // Rounding may leave the mean outside by a last place.
  return {mean, std::min(mean, std::max(0.0, centre - half)),
          std::max(mean, std::min(1.0, centre + half))};
}

}  // namespace temper
