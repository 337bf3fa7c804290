#include "temper/check/memory/longest_row.h"

#include <algorithm>

namespace temper::checks {
namespace {

constexpr int64_t kShortest = 256, kMostPlanned = int64_t{1} << 18;
constexpr int64_t kMost = int64_t{1} << 40;

int64_t two_digits(int64_t n) {
  int64_t unit = 1;
  while (n / unit >= 100) unit *= 10;
  return n / unit * unit;
}

}  // namespace

// A pass takes some bytes and about as many more for each token: three or four lines through two
// lengths find the length that takes `usable`.
int64_t longest_row(const RunShape& run, const Ranks& ranks, int64_t program_bytes,
                    int64_t usable) {
  RunShape shape = run;
  const auto bytes = [&](int64_t tokens) {
    shape.largest = {{.tokens = tokens, .targets = tokens, .first = false, .longest = tokens}};
    return plan_memory(shape, ranks, program_bytes).phases.back().bytes();
  };
  int64_t before = kShortest, at_before = bytes(before);
  if (at_before > usable) return 0;
  int64_t now = 16 * kShortest, at_now = bytes(now), found = 0;
  for (int i = 0; i < 3; ++i) {
    const double a_token =
        std::max(1.0, static_cast<double>(at_now - at_before) / static_cast<double>(now - before));
    const double more = static_cast<double>(usable - at_now) / a_token;
    found = now + static_cast<int64_t>(std::clamp(more, -0x1p40, 0x1p40));
    found = std::clamp(found, kShortest, kMost);
    const int64_t next = std::min(found, kMostPlanned);
    if (next == now || next == before) break;
    before = now, at_before = at_now;
    now = next, at_now = bytes(now);
    if (now == kMostPlanned && at_now <= usable && i > 0) break;
  }
  return two_digits(now < kMostPlanned && at_now > usable ? found * 98 / 100 : found);
}

}  // namespace temper::checks
