// Numbers as people read them, on the console and in the report.
#pragma once

#include <string>

namespace temper {

std::string format_fixed(double value, int digits);
std::string format_brief(double value);       // four significant digits
std::string format_count(double value);       // "1,234,567"
std::string format_bytes(double value);       // "1.23 GB", powers of 1000
std::string format_duration(double seconds);  // "42ms", "4.2s", "1:05", "2:03:04"

}  // namespace temper
