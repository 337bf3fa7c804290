// Pass rates of a model, with confidence intervals.
#pragma once

#include <cstdint>
#include <span>

namespace temper {

// The chance that one of k samples is right where `correct` of `samples` were: 1 - C(n - c, k) /
// C(n, k), unbiased (Chen et al., arXiv 2107.03374, equation 1). 1 <= k <= samples.
double pass_at_k(int64_t samples, int64_t correct, int64_t k);

struct Interval {
  double mean = 0, low = 0, high = 0;  // low, high: NaN where the values say nothing of it
  bool is_known() const { return low <= high; }
};
// The t for which 95 % of Student's t distribution lie within [-t, t].
double student_quantile(double degrees);
// The mean of independent values and its 95 % interval. Where all are within [0, 1] it is Wilson's
// for a share (Wilson, JASA 1927), which stays within [0, 1] and does not pretend to be sure where
// nothing varied, with the effective number of values (Kish, Survey Sampling, 1965) where they are
// shares themselves; else Student's t (Biometrika, 1908), which one value has none of.
Interval confidence_interval(std::span<const double> values);

}  // namespace temper
