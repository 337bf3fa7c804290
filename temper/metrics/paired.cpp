#include "temper/metrics/paired.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "temper/metrics/pass_rate.h"

namespace temper {
namespace {

// Half the width of the 95 % interval of the difference of two independent means of n values each,
// with these variances.
double welch_half_width(double n, double variance_a, double variance_b) {
  const double sum = variance_a + variance_b;
  if (sum == 0) return 0;
  const double degrees = (n - 1) * sum * sum / (variance_a * variance_a + variance_b * variance_b);
  return student_quantile(degrees) * std::sqrt(sum / n);
}

// The number of terms of the cosine transform that a series' variance is estimated by.
int64_t cosine_terms(double n) {
  return std::max<int64_t>(static_cast<int64_t>(0.4 * std::pow(n, 2.0 / 3)), 1);
}

// n times the variance of the values' mean: of the deviations of n values from it, in the order of
// time.
double long_run_variance(const std::vector<double>& deviations) {
  const double n = static_cast<double>(deviations.size());
  std::vector<double> terms(static_cast<size_t>(cosine_terms(n)));
  for (size_t t = 0; t < deviations.size(); ++t) {
    const double twice = 2 * std::cos(std::numbers::pi * (static_cast<double>(t) + 0.5) / n);
    double before = 1, cosine = twice / 2;  // of 0 and 1 times the angle
    for (double& term : terms) {
      term += deviations[t] * cosine;
      before = std::exchange(cosine, twice * cosine - before);
    }
  }
  double squares = 0;
  for (const double term : terms) squares += term * term;
  return squares * 2 / n / static_cast<double>(terms.size());
}

double independent_variance(const std::vector<double>& deviations) {
  double squares = 0;
  for (const double deviation : deviations) squares += deviation * deviation;
  return squares / static_cast<double>(deviations.size() - 1);
}

}  // namespace

PairedDifference paired_difference(const std::string& metric,
                                   const std::vector<std::pair<double, double>>& pairs) {
  PairedDifference out{metric, std::ssize(pairs)};
  const double n = static_cast<double>(pairs.size());
  for (const auto& [a, b] : pairs) {
    out.mean_a += a / n;
    out.mean_b += b / n;
    out.mean += (b - a) / n;
  }
  out.is_constant =
      std::ranges::all_of(pairs, [](const auto& pair) { return pair.first == pair.second; }) ||
      (pairs.size() > 1 &&
       std::ranges::all_of(pairs, [&](const auto& pair) { return pair == pairs[0]; }));
  if (pairs.size() < 2) {
    out.half_width = out.series_half_width = out.unpaired_half_width =
        std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  std::vector<double> of_a, of_b, differences;
  for (const auto& [a, b] : pairs) {
    of_a.push_back(a - out.mean_a);
    of_b.push_back(b - out.mean_b);
    differences.push_back(b - a - out.mean);
  }
  const auto half_width = [n](double degrees, double variance) {
    return student_quantile(degrees) * std::sqrt(variance / n);
  };
  out.half_width = half_width(n - 1, independent_variance(differences));
  out.series_half_width =
      half_width(static_cast<double>(cosine_terms(n)), long_run_variance(differences));
  out.unpaired_half_width =
      welch_half_width(n, independent_variance(of_a), independent_variance(of_b));
  return out;
}

std::vector<PairedDifference> paired_differences(std::span<const MetricsRow> a,
                                                 std::span<const MetricsRow> b, int64_t after) {
  std::map<std::pair<int64_t, bool>, const MetricsRow*> of_b;
  for (const MetricsRow& row : b) of_b[{row.step(), row.is_eval()}] = &row;
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::pair<double, double>>> pairs;
  for (const MetricsRow& row : a) {
    const auto other = of_b.find({row.step(), row.is_eval()});
    if (row.step() <= after || other == of_b.end()) continue;
    for (const auto& [name, _] : row.values()) {
      if (name == "step") continue;
      const auto x = row.number(name), y = other->second->number(name);
      if (!x || !y || !std::isfinite(*x) || !std::isfinite(*y)) continue;
      if (!pairs.contains(name)) order.push_back(name);
      pairs[name].emplace_back(*x, *y);
    }
  }
  std::vector<PairedDifference> out;
  for (const std::string& name : order) out.push_back(paired_difference(name, pairs[name]));
  return out;
}

}  // namespace temper
