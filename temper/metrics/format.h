// Numbers as people read them, on the console and in the report.
#pragma once

#include <string>
#include <string_view>

namespace temper {

std::string format_fixed(double value, int digits);
std::string format_brief(double value);       // four significant digits
std::string format_count(double value);       // "1,234,567"
std::string format_bytes(double value);       // "1.23 GB", powers of 1000
std::string format_duration(double seconds);  // "42ms", "4.2s", "1:05", "2:03:04"

// A value of a metric in its unit (MetricInfo::unit): "s" as a duration, "bytes" with a prefix,
// "tokens" and "tokens/s" with commas, anything else as four significant digits, those that are 0
// too, so that a column stays where it is.
std::string format_value(double value, std::string_view unit);

}  // namespace temper
