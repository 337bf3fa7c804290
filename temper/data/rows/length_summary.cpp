#include "temper/data/rows/length_summary.h"

#include <algorithm>
#include <cmath>

namespace temper::data {
namespace {

// The length at a share of the sorted ones, from 0 to 1.
int64_t at_share(const std::vector<int32_t>& sorted, double share) {
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(sorted.size())));
  const auto last = static_cast<int64_t>(sorted.size()) - 1;
  return sorted[static_cast<size_t>(std::clamp<int64_t>(rank - 1, 0, last))];
}

int64_t round_width(int64_t least) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t step : {1, 2, 5})
      if (step * power >= least) return step * power;
}

}  // namespace

LengthSummary summary_of(std::vector<int32_t> lengths) {
  LengthSummary summary;
  if (lengths.empty()) return summary;
  std::sort(lengths.begin(), lengths.end());
  for (const int32_t length : lengths) summary.total += length;
  summary.mean = static_cast<double>(summary.total) / static_cast<double>(lengths.size());
  summary.least = lengths.front();
  summary.longest = lengths.back();
  summary.median = at_share(lengths, 0.5);
  summary.p90 = at_share(lengths, 0.9);
  summary.p99 = at_share(lengths, 0.99);
  return summary;
}

std::vector<HistogramBin> histogram_of(const std::vector<int32_t>& lengths, int most) {
  std::vector<HistogramBin> bins;
  if (lengths.empty()) return bins;
  std::vector<int32_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  const int64_t least = sorted.front(), longest = sorted.back(), usual = at_share(sorted, 0.995);
  const int64_t shown = longest - least > 2 * (usual - least) && usual > least ? usual : longest;
  int64_t width = round_width((shown - least) / most + 1);
  while (shown / width - least / width + 1 > most) width = round_width(width + 1);
  const int64_t first = least / width;
  for (int64_t bin = first; bin <= shown / width; ++bin)
    bins.push_back({bin * width, (bin + 1) * width - 1, 0});
  bins.back().to = std::max(bins.back().to, longest);
  for (const int32_t length : lengths) {
    const auto bin = static_cast<size_t>(length / width - first);
    ++bins[std::min(bin, bins.size() - 1)].rows;
  }
  return bins;
}

}  // namespace temper::data
