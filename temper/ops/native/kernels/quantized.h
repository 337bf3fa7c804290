// Matrices of few bits for a linear layer's frozen weight W [out, in]: each value is a code with a
// scale for the values around it, and products read the codes directly:
//     W[r, i] = value of code * scale,   rounded once to float32.
// A product is the chain of temper/ops/native/kernels/gemm.h over these values, so that it gives
// the bits that the float32 matrix of the same values gives.
#pragma once

#include <cstdint>

#include "temper/ops/formats.h"
#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

using ops::WeightFormat;

// How a matrix lies in memory. The rows of a panel (panel_width() of them, the last panel padded)
// stand side by side for each index along the width: codes[panel][i][row], of four bits two to a
// byte, the low halves those of the panel's first half of rows. Values of a row share a scale over
// `group` indices: scales[panel][i / group][row].
struct QuantizedMatrix {
  WeightFormat format = WeightFormat::kNf4;
  int64_t rows = 0, width = 0;  // out and in
  int64_t group = 0;            // ops::scale_group(format, width)
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
};

int64_t code_bytes(WeightFormat format, int64_t rows, int64_t width);
int64_t scale_count(WeightFormat format, int64_t rows, int64_t width);

// Quantizes count values: one code a byte; absmax [ceil(count / 64)], or for int8 a scale for each
// of count / width rows. Callers refuse values that are not finite.
void quantize_nf4(const float* values, int64_t count, uint8_t* code, float* absmax);
void quantize_int8(const float* values, int64_t rows, int64_t width, uint8_t* code, float* scale);

// Quantizes the absmax of nf4's blocks as bitsandbytes does ("double quantization"), less their
// mean, in blocks of 256 by 8-bit codes of a dynamic map, and writes the dequantized values back.
void quantize_absmax(float* absmax, int64_t count);
// The dynamic map's 256 values, ascending (Dettmers, arXiv 1511.04561 and 2110.02861).
const float* dynamic_map_values();

// From one code a byte in row-major order, and the scales of blocks or rows, to the layout above.
// In parallel.
void pack_codes(WeightFormat format, int64_t rows, int64_t width, const uint8_t* row_major,
                const float* scale, uint8_t* codes, float* scales);

// The values, row-major [rows, width]. In parallel.
void dequantize(const QuantizedMatrix& w, float* values);

// c[m, rows] = a[m, width] Wᵀ (+ bias). Parallel.
void gemm(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c, int64_t ldc,
          const GemmOptions& options = {});
// c[m, width] = a[m, rows] W. Parallel.
void gemm_transposed(int64_t m, MatrixView<float> a, const QuantizedMatrix& w, float* c,
                     int64_t ldc, const GemmOptions& options = {});

// Where codes of four bits stand, and their values as byte shuffles look them up.

// FormatRow::values by bytes: byte j, from the lowest, of value i at [16 * j + i].
const uint8_t* four_bit_bytes(WeightFormat format);

// Products of few rows read codes by four indices, which then share a scale.
inline bool in_fours(int64_t group) { return group % 4 == 0; }

// The byte of a panel in which index i of row r is, r below half a panel. In panels of 16 rows and
// in_fours(): [i / 4][r / 4][i % 4][r % 4], else [i][r].
inline int64_t four_bits_place(int64_t panel, int64_t group, int64_t i, int64_t r) {
  return panel == 16 && in_fours(group) ? i / 4 * 32 + r / 4 * 16 + i % 4 * 4 + r % 4
                                        : i * (panel / 2) + r;
}

}  // namespace temper::kernels
