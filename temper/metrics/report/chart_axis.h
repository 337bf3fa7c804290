// Where a chart's axis is marked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct Axis {
  struct Tick {
    double value;
    std::string text;
  };
  double low = 0, high = 1;  // low < high: the first tick and the last
  std::vector<Tick> ticks;   // ascending; no two texts are equal
};

// Holds `low` to `high`, both finite, between ticks at 1, 2 or 5 times a power of ten of a prefix
// of `unit` (MetricInfo::unit: GB, minutes, ...). Values that differ by less than a ten-thousandth
// are given the axis of equal ones.
Axis value_axis(double low, double high, std::string_view unit);

// The same of decimal logarithms, 0 < low <= high: an axis of the logarithms of values, with ticks
// at 1, 2 and 5 times powers of ten, or at those powers alone where there are many.
Axis log_axis(double low, double high, std::string_view unit);

// An axis of whole numbers, `first` <= `last`: both ends and some numbers between them.
Axis step_axis(double first, double last);

}  // namespace temper
