#include "temper/check/text.h"

#include <array>
#include <cstdio>

namespace temper::checks {
namespace {

std::string three_digits(double value, const char* unit) {
  std::array<char, 40> text{};
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f%s", decimals, value, unit);
  return text.data();
}

}  // namespace

std::string counted(int64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e12) return three_digits(value / 1e12, "T");
  if (value >= 1e9) return three_digits(value / 1e9, "B");
  if (value >= 1e6) return three_digits(value / 1e6, "M");
  std::string grouped;
  const std::string digits = std::to_string(count);
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string megabytes(double bytes) {
  if (bytes >= 1e12) return three_digits(bytes / 1e12, " TB");
  if (bytes >= 1e9) return three_digits(bytes / 1e9, " GB");
  if (bytes >= 1e6) return three_digits(bytes / 1e6, " MB");
  return three_digits(bytes / 1e3, " kB");
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return three_digits(seconds, " s");
  if (seconds >= 1e-3) return three_digits(seconds * 1e3, " ms");
  return three_digits(seconds * 1e6, " us");
}

}  // namespace temper::checks
