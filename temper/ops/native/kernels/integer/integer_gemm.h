// Products in integers of activations with a quantized matrix W [out, in]
// (ops::Arithmetic::kInteger; docs/numerics.md has the definition). A row of activations is divided
// into blocks, at most ops::kRoundingBlock values that share each row's scale of W:
//     s = max |x| / 127,  q = x / s to the nearest integer, ties to even, at most 127 in magnitude;
//     s = 0: q = 0; a block with a value that is not finite: s = NaN, q = 0.
// With the integers t, unit and scales of W (ops/integers.h), from y = 0, block by block:
//     y = y + float(sum of q t) * ((s * unit) * scale),
// every operation in float32, rounded once; the sums are exact. With zero points the sum is that of
// q (t - zero); with minimums, y = y - float(sum of q) * (s * minimum) follows. The bias is added
// last. No instruction, tile, number of rows or of threads changes a bit.
#pragma once

#include <cstdint>
#include <memory>

#include "temper/ops/integers.h"
#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/integer/panel.h"
#include "temper/ops/native/kernels/quantized.h"

namespace temper::kernels {

// Activations, rounded once for any number of products.
struct RoundedRows {
  int64_t rows = 0, width = 0, group = 0;
  int64_t blocks = 0;  // of a row
  int64_t stride = 0;  // from row to row: no power of two, by which rows would share cache lines
  std::unique_ptr<int8_t[]> values;  // [rows, width], rows stride apart
  std::unique_ptr<float[]> scales;   // [rows, blocks]
  std::unique_ptr<int32_t[]> sums;   // [rows, blocks]: of a block's values
};
// a[rows, width], for matrices whose rows share scales over `group` values. In parallel.
RoundedRows round_rows(int64_t rows, MatrixView<float> a, int64_t width, int64_t group);

enum class IntegerChoice {
  kBest,    // what the processor has
  kPlain,   // without instructions that the SIMD target lacks
  kScalar,  // the definition
};
// c[rows, w's rows] = rows [first, first + rows) of x times Wᵀ (+ bias). Parallel.
void multiply_integers(const RoundedRows& x, int64_t first, int64_t rows, const QuantizedMatrix& w,
                       float* c, int64_t ldc, const float* bias = nullptr,
                       IntegerChoice choice = IntegerChoice::kBest);
// The same of rows that are rounded here, a part at a time.
void integer_gemm(int64_t rows, MatrixView<float> a, const QuantizedMatrix& w, float* c,
                  int64_t ldc, const float* bias = nullptr);

// The name of what IntegerChoice::kBest is: "AVX512-VNNI", "AVX2", ..., "scalar".
const char* integer_instructions();

}  // namespace temper::kernels
