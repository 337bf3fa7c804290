// Paired differences between two runs of which one is a fork of the other: both have seen the same
// rows and random numbers, so that what they have in common cancels out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/metrics/row.h"

namespace temper {

// Of one metric: b - a, over the pairs of values that both runs have.
struct PairedDifference {
  std::string metric;
  int64_t pairs = 0;
  double mean_a = 0, mean_b = 0;
  double mean = 0;
  // Half the width of its 95 % confidence interval: Student's t with pairs - 1 degrees of freedom
  // times the standard error, as of independent pairs. NaN for a single pair.
  double half_width = 0;
  // The same of pairs in the order of time, each like those before it, about a mean that does not
  // drift. The mean's variance is estimated by the first B = 0.4 pairs^(2/3) (rounded down, at
  // least 1) terms of the differences' cosine transform, all of one weight (EWC), and Student's t
  // has B degrees of freedom: Lazarus, Lewis, Stock, Watson, "HAR Inference: Recommendations for
  // Practice", JBES 36(4), 2018. NaN for a single pair.
  double series_half_width = 0;
  // What it would be if the runs had nothing in common: Welch's (1947), of two independent means.
  double unpaired_half_width = 0;
  // Every pair is of equal values, or all of several pairs are the same one: nothing to compare.
  bool is_constant = false;
};

// Of these pairs (a, b) of finite numbers, at least one.
PairedDifference paired_difference(const std::string& metric,
                                   const std::vector<std::pair<double, double>>& pairs);

// Of every metric, in the order of its first row in `a`, over the rows of steps after `after` that
// have a finite number in both runs.
std::vector<PairedDifference> paired_differences(std::span<const MetricsRow> a,
                                                 std::span<const MetricsRow> b, int64_t after);

}  // namespace temper
