// The integers for which codes of quantized weights stand in products in integers
// (Arithmetic::kInteger, docs/numerics.md): a weight is integer * unit * scale. Plain C++ without
// LibTorch, because the kernels include it.
#pragma once

#include <array>
#include <cstdint>

#include "temper/ops/formats.h"

namespace temper::ops {

// Activations are rounded in blocks of so many values at most; a block lies within one scale's
// values of the weight.
inline constexpr int64_t kRoundingBlock = 64;
// How many blocks a row has, where `group` values share a scale.
constexpr int64_t rounding_blocks(int64_t width, int64_t group) {
  return group == 0 ? 0 : width / group * ((group + kRoundingBlock - 1) / kRoundingBlock);
}

struct CodeIntegers {
  std::array<int8_t, 16> table{};  // of codes of 4 bits
  float unit = 1;
};

// If the values are integers of at most 127 times a power of two not below 2^-8, those integers of
// the largest such power; else value / (largest magnitude / 127), rounded to the nearest.
constexpr CodeIntegers integers_of(const float* values) {
  const auto magnitude = [](float x) { return x < 0 ? -x : x; };
  float largest = 0;
  for (int i = 0; i < 16; ++i)
    if (magnitude(values[i]) > largest) largest = magnitude(values[i]);
  CodeIntegers found;
  for (float unit = 64; unit >= 1.0f / 256 && largest / unit <= 127; unit /= 2) {
    bool all = true;
    for (int i = 0; i < 16 && all; ++i) {
      const float x = values[i] / unit;
      all = static_cast<float>(static_cast<int>(x)) == x;
      found.table[static_cast<size_t>(i)] = static_cast<int8_t>(x);
    }
    found.unit = unit;
    if (all) return found;
  }
  found.unit = largest / 127;
  for (int i = 0; i < 16; ++i) {
    const double x = 127.0 * static_cast<double>(values[i]) / static_cast<double>(largest);
    found.table[static_cast<size_t>(i)] = static_cast<int8_t>(x < 0 ? x - 0.5 : x + 0.5);
  }
  return found;
}

// Whether a format's codes stand for integers; those that are floats (FP8) are multiplied exactly.
constexpr bool has_integers(WeightFormat format) {
  return is_quantized(format) && row_of(format).kind != CodeKind::kE4m3;
}
// Of a quantized format; codes that are no index of a table are integers themselves.
constexpr CodeIntegers integers_of(WeightFormat format) {
  const FormatRow& row = row_of(format);
  return row.values ? integers_of(row.values) : CodeIntegers{};
}

static_assert(integers_of(kE2m1Values.data()).unit == 0.5f);
static_assert(integers_of(kNf4Values.data()).table[15] == 127);

}  // namespace temper::ops
