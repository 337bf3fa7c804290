#include "temper/metrics/pass_rate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper {
namespace {
constexpr double kZ = 1.959963984540054;  // standard normal quantile of a 95 % interval

// The regularized incomplete beta function I_x(a, b), by its continued fraction, which converges
// quickly for x < (a + 1) / (a + b + 2) (Abramowitz and Stegun, 26.5.8; evaluated as Lentz does).
double incomplete_beta(double a, double b, double x) {
  if (x >= (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x)) /
                       a;
  const auto away_from_0 = [](double v) { return std::abs(v) < 1e-300 ? 1e-300 : v; };
  double c = 1, d = 1 / away_from_0(1 - (a + b) * x / (a + 1)), value = d;
  for (double m = 1; m < 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (const double term : {even, odd}) {
      d = 1 / away_from_0(1 + term * d);
      c = away_from_0(1 + term / c);
      factor = d * c;
      value *= factor;
    }
    if (std::abs(factor - 1) < 1e-15) break;
  }
  return front * value;
}

}  // namespace

double student_quantile(double degrees) {
  double low = kZ, high = 13;  // 12.7 with one degree of freedom
  for (int i = 0; i < 60; ++i) {
    const double t = (low + high) / 2;
    const double outside = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
    (outside > 0.05 ? low : high) = t;
  }
  return (low + high) / 2;
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
  if (!share) {
    const double half = n > 1 ? student_quantile(n - 1) * std::sqrt(variance)
                              : std::numeric_limits<double>::quiet_NaN();
    return {mean, mean - half, mean + half};
  }
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
