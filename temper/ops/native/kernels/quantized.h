// Matrices of few bits for a linear layer's frozen weight W [out, in]: each value is made of a code
// and of numbers for the values around it (ops::FormatRow), and products read the codes directly.
// A product is the chain of temper/ops/native/kernels/gemm.h over these values, so that it gives
// the bits that the float32 matrix of the same values gives.
#pragma once

#include <cstdint>

#include "temper/ops/formats.h"
#include "temper/ops/native/kernels/attention/cache_dtype.h"
#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

using ops::WeightFormat;

// A number for each group of each row: [panel][group][row]. Nested: an integer a group, times the
// number of its super-block, which stand as [panel][super-block][row].
struct GroupNumbers {
  const float* exact = nullptr;  // or, of the same values,
  const Float16Bits* half = nullptr;
  const int8_t* parts = nullptr;
};

// How a matrix lies in memory. The rows of a panel (panel_width() of them, the last panel padded)
// stand side by side for each index along the width: codes[panel][i][row], of four bits two to a
// byte, the low halves those of the panel's first half of rows. Codes of 2, 3, 5 and 6 bits: see
// unit_bytes(). Values of a row share numbers over `group` indices.
struct QuantizedMatrix {
  WeightFormat format = WeightFormat::kNf4;
  int64_t rows = 0, width = 0;  // out and in
  int64_t group = 0;            // divides the width
  const uint8_t* codes = nullptr;
  GroupNumbers scales = {}, offsets = {};  // offsets: none where all are null
};

int64_t code_bytes(WeightFormat format, int64_t rows, int64_t width);
// Numbers of a GroupNumbers, of `group` values each.
int64_t group_count(int64_t rows, int64_t width, int64_t group);

// Quantizes count values: one code a byte; absmax [ceil(count / 64)], or for int8 a scale for each
// of count / width rows. Callers refuse values that are not finite.
void quantize_nf4(const float* values, int64_t count, uint8_t* code, float* absmax);
void quantize_int8(const float* values, int64_t rows, int64_t width, uint8_t* code, float* scale);

// Quantizes the absmax of nf4's blocks as bitsandbytes does ("double quantization"), less their
// mean, in blocks of 256 by 8-bit codes of a dynamic map, and writes the dequantized values back.
void quantize_absmax(float* absmax, int64_t count);
// The dynamic map's 256 values, ascending (Dettmers, arXiv 1511.04561 and 2110.02861).
const float* dynamic_map_values();

// From one code a byte in row-major order to the layout above. In parallel.
void pack_codes(const QuantizedMatrix& w, const uint8_t* row_major, uint8_t* codes);
// The numbers of blocks of the row-major matrix to those of a row's groups of `group` values, each
// of which lies in one block. T: float, Float16Bits, int8_t.
template <class T>
void pack_numbers(int64_t rows, int64_t width, int64_t group, int64_t block, const T* from, T* to);

// The values, row-major [rows, width]. In parallel.
void dequantize(const QuantizedMatrix& w, float* values);
// Those of one row, [width].
void dequantize_row(const QuantizedMatrix& w, int64_t row, float* values);
// One of them.
float value_at(const QuantizedMatrix& w, int64_t row, int64_t i);
// Its code's value, unscaled, and the number of its group among w's scales or offsets.
float code_value_at(const QuantizedMatrix& w, int64_t row, int64_t i);
float number_at(const GroupNumbers& x, const QuantizedMatrix& w, int64_t row, int64_t i);

// Rows [first, first + count) of a matrix; first begins a panel.
QuantizedMatrix rows_of(const QuantizedMatrix& w, int64_t first, int64_t count);

// c[m, rows] = a[m, width] Wᵀ (+ bias). Parallel.
void gemm(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c, int64_t ldc,
          const GemmOptions& options = {});
// c[m, width] = a[m, rows] W. Parallel.
void gemm_transposed(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c,
                     int64_t ldc, const GemmOptions& options = {});

// Where codes of four bits stand, and their values as byte shuffles look them up.

// FormatRow::values by bytes: byte j, from the lowest, of value i at [16 * j + i].
const uint8_t* four_bit_bytes(WeightFormat format);

// The values of ops::CodeKind::kE4m3's codes.
const float* e4m3_values();

// Products of few rows read codes by four indices, which then share a scale.
inline bool in_fours(int64_t group) { return group % 4 == 0; }

// The byte of a panel in which index i of row r is, r below half a panel. In panels of 16 rows and
// in_fours(): [i / 4][r / 4][i % 4][r % 4], else [i][r].
inline int64_t four_bits_place(int64_t panel, int64_t group, int64_t i, int64_t r) {
  return panel == 16 && in_fours(group) ? i / 4 * 32 + r / 4 * 16 + i % 4 * 4 + r % 4
                                        : i * (panel / 2) + r;
}

// Codes of 2, 3, 5 and 6 bits lie in planes, by four indices i of a panel. With `half` the panel's
// rows / 2, and h 0 for rows r below it, else 1, such a unit holds
//     5 and 6 bits: the low four, two rows to a byte: [i][r], h the upper half of the byte;
//     2, 3 and 6:   the next two, four codes to a byte: [i / 2][r], from bit 4 (i % 2) + 2 h on;
//     3 and 5:      the highest one, eight codes to a byte: [r], bit 2 i + h.
constexpr int unit_bytes(int64_t half, int bits) { return static_cast<int>(half) * bits; }

}  // namespace temper::kernels
