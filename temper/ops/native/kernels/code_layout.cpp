// Where codes and numbers of quantized matrices lie in their panels.
#include <algorithm>
#include <array>
#include <type_traits>

#include "temper/ops/native/kernels/quantized.h"

namespace temper::kernels {
namespace {

using ops::CodeKind;
using ops::OffsetKind;

// A code's bits in a unit of four indices (unit_bytes): calls part(byte, shift, bits), the lowest
// bits first.
template <int kBits, class Part>
void each_part(int64_t half, int64_t i, int64_t r, Part part) {
  const int64_t side = r % half;
  const int h = r < half ? 0 : 1, of_four = static_cast<int>(i % 4);
  int64_t at = 0;
  if constexpr (kBits >= 4) {
    part(of_four * half + side, 4 * h, 4);
    at += 4 * half;
  }
  if constexpr (kBits & 2) {
    part(at + of_four / 2 * half + side, of_four % 2 * 4 + 2 * h, 2);
    at += 2 * half;
  }
  if constexpr (kBits & 1) part(at + side, 2 * of_four + h, 1);
}

template <int kBits>
void put_linear_row(int64_t panel, int64_t r, int64_t width, const uint8_t* row, uint8_t* to) {
  for (int64_t i = 0; i < width; ++i) {
    uint8_t* unit = to + i / 4 * unit_bytes(panel / 2, kBits);
    int code = row[i];
    each_part<kBits>(panel / 2, i, r, [&](int64_t byte, int shift, int count) {
      unit[byte] = static_cast<uint8_t>(unit[byte] | (code & ((1 << count) - 1)) << shift);
      code >>= count;
    });
  }
}
template <int kBits>
int linear_at(int64_t panel, int64_t i, int64_t r, const uint8_t* codes) {
  const uint8_t* unit = codes + i / 4 * unit_bytes(panel / 2, kBits);
  int code = 0, at = 0;
  each_part<kBits>(panel / 2, i, r, [&](int64_t byte, int shift, int count) {
    code |= (unit[byte] >> shift & ((1 << count) - 1)) << at;
    at += count;
  });
  return code;
}

void put_table_row(int64_t panel, int64_t group, int64_t r, int64_t width, const uint8_t* row,
                   uint8_t* to) {
  const int64_t half = panel / 2;
  for (int64_t i = 0; i < width; ++i) {
    uint8_t& byte = to[four_bits_place(panel, group, i, r % half)];
    byte = static_cast<uint8_t>(byte | (row[i] & 15) << (r < half ? 0 : 4));
  }
}

// Calls body(bits) with a constant.
template <class Body>
auto with_bits(int bits, Body body) {
  switch (bits) {
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 5:
      return body(std::integral_constant<int, 5>());
    default:
      return body(std::integral_constant<int, 6>());
  }
}

// A sign, four bits of exponent with a bias of 7, three of mantissa.
constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    float value = static_cast<float>(exponent == 0 ? fraction : fraction + 8) / 512.0f;
    for (int e = 1; e < exponent; ++e) value *= 2;
    values[static_cast<size_t>(code)] = code >= 128 ? -value : value;
  }
  return values;
}();

}  // namespace

const float* e4m3_values() { return kE4m3Values.data(); }

float number_at(const GroupNumbers& x, const QuantizedMatrix& w, int64_t row, int64_t i) {
  const int64_t panel = panel_width(), p = row / panel, r = row % panel,
                super = row_of(w.format).super_block, per = x.parts ? super : w.group;
  const int64_t at = (p * (w.width / per) + i / per) * panel + r;
  const float number = x.exact ? x.exact[at] : to_float(x.half[at]);
  if (!x.parts) return number;
  return number * static_cast<float>(x.parts[(p * (w.width / w.group) + i / w.group) * panel + r]);
}

float code_value_at(const QuantizedMatrix& w, int64_t row, int64_t i) {
  const ops::FormatRow& format = row_of(w.format);
  const int64_t panel = panel_width(), r = row % panel, half = panel / 2;
  const uint8_t* codes = w.codes + row / panel * (w.width * panel * format.bits / 8);
  switch (format.kind) {
    case CodeKind::kTable: {
      const uint8_t both = codes[four_bits_place(panel, w.group, i, r % half)];
      return format.values[r < half ? both & 15 : both >> 4];
    }
    case CodeKind::kLinear:
      return static_cast<float>(format.first + with_bits(format.bits, [&](auto bits) {
                                  return linear_at<bits>(panel, i, r, codes);
                                }));
    case CodeKind::kInt8:
      return static_cast<float>(static_cast<int8_t>(codes[i * panel + r]));
    case CodeKind::kE4m3:
      return kE4m3Values[codes[i * panel + r]];
  }
  return 0;
}

namespace {

// Values [first, first + count) of a row, which are of one group.
void values_of_group(const QuantizedMatrix& w, int64_t row, int64_t first, int64_t count,
                     float* values) {
  const float scale = number_at(w.scales, w, row, first);
  const bool offsets = w.offsets.exact || w.offsets.half;
  const float offset = offsets ? number_at(w.offsets, w, row, first) : 0.0f;
  const OffsetKind kind = offsets ? row_of(w.format).offset : OffsetKind::kNone;
  for (int64_t i = 0; i < count; ++i) {
    const float value = code_value_at(w, row, first + i);
    values[i] = kind == OffsetKind::kZero      ? (value - offset) * scale
                : kind == OffsetKind::kMinimum ? value * scale - offset
                                               : value * scale;
  }
}

}  // namespace

float value_at(const QuantizedMatrix& w, int64_t row, int64_t i) {
  float value;
  values_of_group(w, row, i, 1, &value);
  return value;
}

void dequantize_row(const QuantizedMatrix& w, int64_t row, float* values) {
  for (int64_t i = 0; i < w.width; i += w.group) values_of_group(w, row, i, w.group, values + i);
}

QuantizedMatrix rows_of(const QuantizedMatrix& w, int64_t first, int64_t count) {
  QuantizedMatrix out = w;
  out.rows = count;
  out.codes += first * w.width * row_of(w.format).bits / 8;
  const int64_t super = row_of(w.format).super_block;
  for (GroupNumbers* x : {&out.scales, &out.offsets}) {
    const int64_t numbers = first * (w.width / (x->parts ? super : w.group));
    if (x->exact) x->exact += numbers;
    if (x->half) x->half += numbers;
    if (x->parts) x->parts += first * (w.width / w.group);
  }
  return out;
}

void pack_codes(const QuantizedMatrix& w, const uint8_t* row_major, uint8_t* codes) {
  const ops::FormatRow& format = row_of(w.format);
  const int64_t panel = panel_width(), bytes = w.width * panel * format.bits / 8;
#pragma omp parallel for schedule(static) if (w.rows * w.width > 32768)
  for (int64_t p = 0; p < (w.rows + panel - 1) / panel; ++p) {
    // A row at a time: its codes lie side by side where they come from.
    uint8_t* to = codes + p * bytes;
    std::fill(to, to + bytes, uint8_t{0});
    for (int64_t r = 0; r < std::min(panel, w.rows - p * panel); ++r) {
      const uint8_t* from = row_major + (p * panel + r) * w.width;
      if (format.kind == CodeKind::kLinear)
        with_bits(format.bits,
                  [&](auto bits) { put_linear_row<bits>(panel, r, w.width, from, to); });
      else if (format.kind == CodeKind::kTable)
        put_table_row(panel, w.group, r, w.width, from, to);
      else
        for (int64_t i = 0; i < w.width; ++i) to[i * panel + r] = from[i];
    }
  }
}

template <class T>
void pack_numbers(int64_t rows, int64_t width, int64_t group, int64_t block, const T* from, T* to) {
  const int64_t panel = panel_width(), groups = width / group;
#pragma omp parallel for schedule(static) if (rows * groups > 32768)
  for (int64_t p = 0; p < (rows + panel - 1) / panel; ++p)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t r = 0; r < panel; ++r) {
        const int64_t row = p * panel + r;
        to[(p * groups + g) * panel + r] =
            row < rows ? from[(row * width + g * group) / block] : T{};
      }
}
template void pack_numbers(int64_t, int64_t, int64_t, int64_t, const float*, float*);
template void pack_numbers(int64_t, int64_t, int64_t, int64_t, const Float16Bits*, Float16Bits*);
template void pack_numbers(int64_t, int64_t, int64_t, int64_t, const int8_t*, int8_t*);

}  // namespace temper::kernels
