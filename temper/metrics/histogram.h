// How values are distributed, for sinks that draw it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace temper {

struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> edges;    // ascending, one more than there are bins; none without values
  std::vector<int64_t> counts;  // of each bin; a value on an edge is in the bin above, the largest
                                // in the last one
};

// Of the finite values: bins of one width from the smallest to the largest, one where all are the
// same.
Histogram histogram_of(std::span<const double> values);

}  // namespace temper
