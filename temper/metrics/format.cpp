#include "temper/metrics/format.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace temper {
namespace {
constexpr double kMaxInteger = 1e15;  // beyond, a double is shown with an exponent
}

std::string format_fixed(double value, int digits) {
  if (!(std::abs(value) < kMaxInteger)) return format_brief(value);
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  const bool zero = std::strspn(buffer, "-0.") == std::strlen(buffer);
  return buffer + (zero && buffer[0] == '-');  // no "-0.00"
}

std::string format_brief(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", value);
  return buffer;
}

std::string format_count(double value) {
  if (!(std::abs(value) < kMaxInteger)) return format_brief(value);
  std::string text = std::to_string(std::llround(value));
  const size_t sign = text[0] == '-' ? 1 : 0;
  for (size_t i = text.size(); i > sign + 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string format_bytes(double value) {
  static constexpr const char* kUnits[] = {" B", " kB", " MB", " GB", " TB", " PB"};
  size_t unit = 0;
  while (std::abs(value) >= 1000 && unit < 5) value /= 1000, ++unit;
  return (unit == 0 ? format_count(value)
                    : format_fixed(value, value < 10    ? 2
                                          : value < 100 ? 1
                                                        : 0)) +
         kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(std::abs(seconds) < kMaxInteger)) return format_brief(seconds);
  if (seconds > 0 && seconds < 0.1) return format_fixed(seconds * 1000, 0) + "ms";
  if (seconds < 10) return format_fixed(seconds, 1) + "s";
  const long long s = std::llround(seconds);
  char buffer[48];
  if (s >= 3600)
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    std::snprintf(buffer, sizeof buffer, "%lld:%02lld", s / 60, s % 60);
  return buffer;
}

std::string format_value(double value, std::string_view unit) {
  constexpr double kSmall = 1e-3, kLarge = 1e4;  // within, no exponent is needed
  constexpr double kFewTokens = 1000;            // below, a mean's fraction counts
  if (unit == "s") return format_duration(value);
  if (unit == "bytes") return format_bytes(value);
  const double size = std::abs(value);
  if (unit == "tokens" && size < kFewTokens && value != std::floor(value))
    return format_fixed(value, 1);
  if (unit == "tokens" || unit == "tokens/s") return format_count(value);
  if (!(size >= kSmall && size < kLarge)) return format_brief(value);
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%#.4g", value);
  const std::string text = buffer;
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

}  // namespace temper
