// Values that instructions for bfloat16 are tried on before they are used.
#pragma once

#include <cmath>
#include <limits>

#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

// x, or the zero of its sign where x is denormal.
inline float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// Values of many magnitudes, some of them denormal or zero, from a fixed sequence.
class BFloat16Draws {
 public:
  BFloat16Bits next() {
    const uint32_t draw = step(), exponent = draw >> 8 & 7;
    const uint32_t sign = draw >> 31 << 15, fraction = draw & 127;
    if (exponent == 0) return static_cast<BFloat16Bits>(sign | (draw & 1024 ? fraction : 0));
    if (exponent == 1)
      return static_cast<BFloat16Bits>(sign | (40 + fraction % 40) << 7 | fraction);
    return static_cast<BFloat16Bits>(sign | (120 + fraction % 14) << 7 | (draw >> 16 & 127));
  }

 private:
  uint32_t step() { return state_ = state_ * 1664525u + 1013904223u, state_ ^ state_ >> 15; }
  uint32_t state_ = 1;
};

}  // namespace temper::kernels
