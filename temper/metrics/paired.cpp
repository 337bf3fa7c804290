#include "temper/metrics/paired.h"

#include <cmath>
#include <limits>
#include <map>
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
  if (pairs.size() < 2) {
    out.half_width = out.unpaired_half_width = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  double squares = 0, squares_a = 0, squares_b = 0;
  for (const auto& [a, b] : pairs) {
    squares += (b - a - out.mean) * (b - a - out.mean);
    squares_a += (a - out.mean_a) * (a - out.mean_a);
    squares_b += (b - out.mean_b) * (b - out.mean_b);
  }
  out.half_width = student_quantile(n - 1) * std::sqrt(squares / (n - 1) / n);
  out.unpaired_half_width = welch_half_width(n, squares_a / (n - 1), squares_b / (n - 1));
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
