// Codes of every format for tests, and their values by the formats' definitions.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "temper/ops/codes.h"
#include "tests/ops/kernels.h"

namespace temper::ops {

inline std::vector<WeightFormat> quantized_formats() {
  std::vector<WeightFormat> formats;
  for (const FormatRow& row : kWeightFormats)
    if (row.block != 0) formats.push_back(row.format);
  return formats;
}

// The next width that matrices of the format can have.
inline int64_t allowed_width(WeightFormat format, int64_t width) {
  const FormatRow& row = row_of(format);
  const int64_t of = row.super_block > 0                                     ? row.super_block
                     : row.kind == CodeKind::kLinear || row.scale_bits == 16 ? 32
                                                                             : 1;
  return (width + of - 1) / of * of;
}

// Any codes and numbers. `group`: of kOwnBlock formats; offsets: whether they have any.
inline Codes random_codes(WeightFormat format, int64_t rows, int64_t width, uint32_t seed,
                          int64_t group = 32, bool offsets = true) {
  const FormatRow& row = row_of(format);
  kernels::Draws draws(seed);
  Codes out{.format = format, .rows = rows, .width = width};
  if (row.block == kOwnBlock) out.group = width % group == 0 ? group : width;
  if (row.scale_bits == 16 && row.block > 0) out.group = row.block;
  for (int64_t i = 0; i < rows * width; ++i) {
    int64_t code = draws.below(int64_t{1} << row.bits);
    if (row.kind == CodeKind::kE4m3 && (code & 127) == 127) code = 1;  // NaN
    out.codes.push_back(static_cast<uint8_t>(code));
  }
  const int64_t groups =
                    out.group > 0 ? rows * (width / out.group) : block_count(format, rows, width),
                scales = row.super_block > 0 ? rows * width / row.super_block : groups;
  // Numbers that float16 has, of both signs and small ones.
  const auto number = [&] {
    return std::ldexp(static_cast<float>(draws.between(-2047, 2047)),
                      static_cast<int>(draws.between(-24, -10)));
  };
  const bool has_offsets = row.offset != OffsetKind::kNone && offsets;
  for (int64_t i = 0; i < scales; ++i) {
    out.scales.push_back(number());
    if (!has_offsets) continue;
    out.offsets.push_back(
        row.offset == OffsetKind::kZero
            ? static_cast<float>(draws.between(row.bits == 4 ? 0 : -128, row.bits == 4 ? 16 : 128))
            : number());
  }
  for (int64_t i = 0; i < groups && row.super_block > 0; ++i) {
    out.sub_scales.push_back(static_cast<int8_t>(draws.between(-128, 127)));
    if (has_offsets) out.sub_offsets.push_back(static_cast<uint8_t>(draws.below(128)));
  }
  return out;
}

// A product or a difference of two float32 numbers in double, which is exact or nearly so, rounded
// once.
inline float once(double x) { return static_cast<float>(x); }

// A sign, four bits of exponent with a bias of 7, three of mantissa.
inline double e4m3(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

// Row-major [rows, width], columns in the order of the codes.
inline std::vector<float> defined_values(const Codes& c) {
  const FormatRow& row = row_of(c.format);
  const int64_t block = c.group > 0 ? c.group : row.block == kRowBlock ? c.width : row.block;
  std::vector<float> out(c.codes.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t group = i / static_cast<size_t>(block);
    const auto number = [&](const std::vector<float>& numbers, const auto& nested) {
      if (row.super_block == 0) return numbers[group];
      return once(static_cast<double>(numbers[i / static_cast<size_t>(row.super_block)]) *
                  static_cast<double>(nested[group]));
    };
    double value = 0;
    if (row.kind == CodeKind::kTable) value = static_cast<double>(row.values[c.codes[i]]);
    if (row.kind == CodeKind::kLinear) value = c.codes[i] + row.first;
    if (row.kind == CodeKind::kInt8) value = static_cast<int8_t>(c.codes[i]);
    if (row.kind == CodeKind::kE4m3) value = e4m3(c.codes[i]);
    const double scale = static_cast<double>(number(c.scales, c.sub_scales));
    const double offset =
        c.offsets.empty() ? 0 : static_cast<double>(number(c.offsets, c.sub_offsets));
    if (row.offset == OffsetKind::kZero)
      out[i] = once(static_cast<double>(once(value - offset)) * scale);
    else
      out[i] = c.offsets.empty() ? once(value * scale)
                                 : once(static_cast<double>(once(value * scale)) - offset);
  }
  return out;
}

}  // namespace temper::ops
