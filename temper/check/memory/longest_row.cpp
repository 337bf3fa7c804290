#include "temper/check/memory/longest_row.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "temper/base/error.h"

namespace temper::checks {
namespace {

constexpr int64_t kShortest = 16, kMostPlanned = int64_t{1} << 19;
constexpr int64_t kMost = int64_t{1} << 40;
constexpr int64_t kParts = 32;  // the search ends within one part of so many of the length

// 10 to the power that leaves two digits of n.
int64_t unit_of(int64_t n) {
  int64_t unit = 1;
  while (n / unit >= 100) unit *= 10;
  return unit;
}
int64_t two_digits(int64_t n) { return n / unit_of(n) * unit_of(n); }

}  // namespace

// The length that fits and the one that does not close in on each other, along the line between
// them: memory grows by about as many bytes for each token, but in steps.
int64_t longest_row(const RunShape& run, const Ranks& ranks, int64_t program_bytes,
                    int64_t usable) {
  RunShape shape = run;
  struct Length {
    int64_t tokens, bytes;
  };
  const auto planned = [&](int64_t tokens) {
    shape.largest = {{.tokens = tokens, .targets = tokens, .first = false, .longest = tokens}};
    try {
      return Length{tokens, plan_memory(shape, ranks, program_bytes).peak_bytes()};
    } catch (const ConfigError&) {  // longer than the model takes (nn::Rotary)
      return Length{tokens, std::numeric_limits<int64_t>::max()};
    }
  };
  const auto on_line = [usable](const Length& a, const Length& b) {
    const double a_token = std::max(
        1.0, static_cast<double>(b.bytes - a.bytes) / static_cast<double>(b.tokens - a.tokens));
    const double more = static_cast<double>(usable - a.bytes) / a_token;
    return static_cast<int64_t>(
        std::clamp(static_cast<double>(a.tokens) + more, 0.0, static_cast<double>(kMost)));
  };
  Length fits = planned(kShortest);
  if (fits.bytes > usable) return 0;
  Length too_long = planned(16 * kShortest);
  while (too_long.bytes <= usable) {
    if (too_long.tokens == kMostPlanned)  // and less than the line says, for the steps
      return std::max(kMostPlanned, two_digits(on_line(fits, too_long) / 16 * 15));
    const int64_t next =
        std::clamp(on_line(fits, too_long) * 9 / 8, 2 * too_long.tokens, 16 * too_long.tokens);
    fits = std::exchange(too_long, planned(std::min(kMostPlanned, next)));
  }
  while (too_long.tokens - fits.tokens > std::max<int64_t>(1, too_long.tokens / kParts)) {
    const int64_t margin = std::max<int64_t>(1, (too_long.tokens - fits.tokens) / 8);
    const Length between = planned(
        std::clamp(on_line(fits, too_long), fits.tokens + margin, too_long.tokens - margin));
    (between.bytes <= usable ? fits : too_long) = between;
  }
  int64_t found = two_digits(fits.tokens);  // which may need more than a longer one, by a step
  while (planned(found).bytes > usable) found -= unit_of(found);
  return found;
}

}  // namespace temper::checks
