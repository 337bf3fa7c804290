#include "temper/metrics/pass_rate.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {
constexpr double kZ = 1.959963984540054;  // of 95 %
}

double pass_at_k(int64_t samples, int64_t correct, int64_t k) {
  if (samples - correct < k) return 1;
  double all_wrong = 1;
  for (int64_t i = samples - correct + 1; i <= samples; ++i) all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

Interval confidence_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const double n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / n;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const bool constant = std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
  if (constant && values[0] >= 0 && values[0] <= 1) {
    const double p = values[0], scale = 1 / (1 + kZ * kZ / n), centre = (p + kZ * kZ / (2 * n)) * scale;
    const double half = kZ * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n)) * scale;
    return {p, std::max(0.0, centre - half), std::min(1.0, centre + half)};
  }
  const double half = n > 1 ? kZ * std::sqrt(squares / (n - 1) / n) : 0;
  return {mean, mean - half, mean + half};
}

}  // namespace temper
