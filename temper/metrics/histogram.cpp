#include "temper/metrics/histogram.h"

#include <algorithm>
#include <cmath>

namespace temper {

Histogram histogram_of(std::span<const double> values) {
  constexpr size_t kBins = 30;
  Histogram h;
  std::vector<double> finite;
  for (const double value : values)
    if (std::isfinite(value)) finite.push_back(value);
  if (finite.empty()) return h;
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
  h.min = *least;
  h.max = *most;
  const double width = (h.max - h.min) / kBins;
  const size_t bins = width > 0 && std::isfinite(width) ? kBins : 1;
  for (size_t i = 0; i < bins; ++i) h.edges.push_back(h.min + static_cast<double>(i) * width);
  h.edges.push_back(h.max);
  h.counts.resize(bins);
  for (const double value : finite) {
    h.sum += value;
    h.sum_squares += value * value;
    const auto above = std::upper_bound(h.edges.begin(), h.edges.end(), value);
    const auto bin = std::min<int64_t>(above - h.edges.begin(), static_cast<int64_t>(bins)) - 1;
    ++h.counts[static_cast<size_t>(std::max<int64_t>(bin, 0))];
  }
  return h;
}

}  // namespace temper
