// Sums and products of counts that are not negative; what is beyond int64_t is its largest number.
#pragma once

#include <cstdint>
#include <limits>

namespace temper::checks {

inline int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

inline int64_t saturated_product(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

// a / b, upwards; b is above 0.
inline int64_t quotient_up(int64_t a, int64_t b) { return a / b + (a % b > 0); }

}  // namespace temper::checks
