// Paired differences between two runs of which one is a fork of the other: both have seen the same
// rows and random numbers, so that what they have in common cancels out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "temper/metrics/row.h"

namespace temper {

// Of one metric: b - a, over the steps that have a finite number in both runs.
struct PairedDifference {
  std::string metric;
  int64_t steps = 0;
  double mean_a = 0, mean_b = 0;
  double mean = 0;
  // Half the width of its 95 % confidence interval: Student's t with steps - 1 degrees of freedom
  // times the standard error. NaN for a single step.
  double half_width = 0;
  // What it would be if the runs had nothing in common: Welch's (1947), of two independent means.
  double unpaired_half_width = 0;
};

// Of every metric, in the order of its first row in `a`, over the rows of steps after `after`.
std::vector<PairedDifference> paired_differences(std::span<const MetricsRow> a,
                                                 std::span<const MetricsRow> b, int64_t after);

}  // namespace temper
