// Number types in which keys and values are cached.
#pragma once

#include <bit>
#include <cstdint>

#include "temper/ops/formats.h"

namespace temper::kernels {

using ops::CacheDtype;

// IEEE 754 binary16.
struct Float16Bits {
  uint16_t bits;
};
inline float to_float(Float16Bits x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, exponent = x.bits & 0x7c00u,
                 fraction = x.bits & 0x3ffu;
  if (exponent == 0) {  // fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t shifted = exponent == 0x7c00u ? 0x7f800000u : (exponent << 13) + (112u << 23);
  return std::bit_cast<float>(sign | shifted | fraction << 13);
}

// In place: each value becomes the nearest one that the type has, ties to even. Finite values
// beyond float16's largest become that, 65504; infinities and NaN stay. Parallel.
void round_to(CacheDtype dtype, int64_t count, float* x);

}  // namespace temper::kernels
