// Lengths of rows: what they add up to, where most of them lie, and a histogram.
#pragma once

#include <cstdint>
#include <vector>

namespace temper::data {

struct LengthSummary {
  int64_t total = 0, least = 0, median = 0, p90 = 0, p99 = 0, longest = 0;
  double mean = 0;
};
// Percentiles are lengths that occur: the smallest that so many percent of the rows do not exceed.
LengthSummary summary_of(std::vector<int32_t> lengths);

struct HistogramBin {
  int64_t from = 0, to = 0;  // both belong to the bin
  int64_t rows = 0;
};
// At most `most` bins of the same width, which is 1, 2 or 5 times a power of ten, from a multiple
// of that width at or below the shortest on. The last holds all rows beyond the 99.5th percentile
// where they would take more than as many bins again.
std::vector<HistogramBin> histogram_of(const std::vector<int32_t>& lengths, int most = 20);

}  // namespace temper::data
