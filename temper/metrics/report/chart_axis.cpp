#include "temper/metrics/report/chart_axis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "temper/base/error.h"
#include "temper/metrics/format.h"

namespace temper {
namespace {

constexpr int kTicks = 4;            // intervals between ticks, roughly
constexpr double kLeastSpan = 1e-4;  // least span of an axis, as a share of its largest value
constexpr double kLeastPart = 1e-5;  // least span of an axis, as a share of its prefix's factor
constexpr double kRounding = 1e-9;   // relative rounding error of divisions that should be exact
constexpr double kNothing = 1e-290;  // values closer to 0 leave no precision for an axis
constexpr double kFlatMargin = 0.1;  // margin around equal values, as a share of them

// A value is shown as value / factor, followed by the suffix.
struct Prefix {
  double factor;
  std::string suffix;
};

template <size_t N>
Prefix power_of_1000(double size, const std::array<const char*, N>& suffixes) {
  size_t power = 0;
  for (; size >= 1000 && power + 1 < N; ++power) size /= 1000;
  return {std::pow(1000, static_cast<double>(power)), suffixes[power]};
}

// size: the axis' largest absolute value.
Prefix prefix_of(double size, std::string_view unit) {
  if (unit == "bytes")
    return power_of_1000(size, std::array{" B", " kB", " MB", " GB", " TB", " PB"});
  if (unit == "tokens" || unit == "tokens/s")
    return size < 1e6 ? Prefix{1, ""} : power_of_1000(size, std::array{"", "", " M", " G", " T"});
  if (unit == "s") {
    if (size < 0.1) return {1e-3, "ms"};
    if (size < 120) return {1, "s"};
    return size < 7200 ? Prefix{60, " min"} : Prefix{3600, " h"};
  }
  if (size >= 1e-2 && size < 1e6) return {1, ""};
  const double thousands = std::clamp(std::floor(std::log10(size) / 3), -100.0, 100.0);
  const int exponent = 3 * static_cast<int>(thousands);
  return {std::pow(10, exponent), str("e", exponent)};
}

double round_tick(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1, 2, 5})
    if (rough / power <= times * (1 + kRounding)) return times * power;
  return 10 * power;
}

}  // namespace

Axis value_axis(double low, double high, std::string_view unit) {
  const auto size = [&] { return std::max(std::abs(low), std::abs(high)); };
  if (size() < kNothing) high = 1;
  Prefix prefix = prefix_of(size(), unit);
  if (!(high - low > std::max(size() * kLeastSpan, prefix.factor * kLeastPart))) {
    const double margin = std::max(size() * kFlatMargin, prefix.factor * kLeastPart);
    low -= margin, high += margin;
    prefix = prefix_of(size(), unit);
  }
  const double tick = round_tick((high - low) / prefix.factor / kTicks);
  const int decimals =
      std::clamp(static_cast<int>(std::ceil(-std::log10(tick) - kRounding)), 0, 15);
  const double first = std::floor(low / prefix.factor / tick + kRounding);
  const double last = std::ceil(high / prefix.factor / tick - kRounding);
  Axis axis{first * tick * prefix.factor, last * tick * prefix.factor, {}};
  for (int i = 0; i <= static_cast<int>(last - first); ++i) {
    const double shown = (first + i) * tick;
    const std::string digits = decimals == 0 ? format_count(shown) : format_fixed(shown, decimals);
    axis.ticks.push_back({shown * prefix.factor, shown == 0 ? "0" : digits + prefix.suffix});
  }
  return axis;
}

Axis log_axis(double low, double high, std::string_view unit) {
  constexpr double kManyDecades = 3;
  const bool many = std::log10(high / low) > kManyDecades;
  std::vector<double> values;
  for (auto power = static_cast<int>(std::floor(std::log10(low))) - 1;
       power <= static_cast<int>(std::ceil(std::log10(high))) + 1; ++power)
    for (const double times : {1, 2, 5})
      if (times == 1 || !many) values.push_back(times * std::pow(10, power));
  // From the last one that is not above `low` to the first that is not below `high`.
  size_t first = 0, last = values.size() - 1;
  while (first + 1 < values.size() && values[first + 1] <= low * (1 + kRounding)) ++first;
  while (last > 0 && values[last - 1] >= high * (1 - kRounding)) --last;
  Axis axis{std::log10(values[first]), std::log10(values[last]), {}};
  for (size_t i = first; i <= last; ++i)
    axis.ticks.push_back({std::log10(values[i]), format_value(values[i], unit)});
  return axis;
}

Axis step_axis(double first, double last) {
  Axis axis{first, std::max(last, first + 1), {}};
  const double middle = std::floor((axis.low + axis.high) / 2);
  axis.ticks.push_back({axis.low, format_count(axis.low)});
  if (middle > axis.low) axis.ticks.push_back({middle, format_count(middle)});
  axis.ticks.push_back({axis.high, format_count(axis.high)});
  return axis;
}

}  // namespace temper
