// Products of Rounding::kBlocks (temper/ops/native/kernels/gemm.h) by the processor's matrix
// instructions, where it has ones that compute the same bits: Intel AMX's TDPBF16PS, one block of k
// of 16 rows and 16 columns in one instruction.
#pragma once

#include <functional>

#include "temper/ops/native/kernels/bfloat16/bfloat16_dot.h"
#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

constexpr int64_t kMatrixSide = 16, kMatrixPairs = kBlockDepth / 2,
                  kMatrixTile = kMatrixSide * kMatrixPairs;

// a[rows, depth], rounded to bfloat16 -> tiles [ceil(rows / 16), ceil(depth / 32)] of pairs [16,
// 16] as those of pack_pairs (bfloat16_dot.h). What is missing after depth is -0, which changes no
// sum; rows that are missing have any values.
void pack_tiles(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* tiles);

struct MatrixInstructions {
  // A product is between start and stop of its thread.
  void (*start)();
  void (*stop)();
  // c[16 * row_tiles, 32] (+)= a b for `blocks` blocks of k, rows of c c_row apart; row_tiles is 1
  // or 2. a: tiles of pack_tiles, those of the second 16 rows a_rows pairs after the first's; b:
  // pairs [16 * blocks, 32]. Starts from 0, or from c if from_c.
  void (*product)(int64_t row_tiles, int64_t blocks, const uint32_t* a, int64_t a_rows,
                  const uint32_t* b, float* c, int64_t c_row, bool from_c);
  // Pairs [16, 32] of a panel's block: bfloat16 [depth, 32], depth at most 32; what is missing is
  // 0.
  void (*pair_columns)(int64_t depth, const BFloat16Bits* panel, uint32_t* pairs);
};
extern const MatrixInstructions kAmx;

// Whether they compute the blocks' sums with denormal numbers zero, bit for bit: tried on products
// of many magnitudes, denormal ones and zeros of both signs among them.
bool keeps_block_sums(const MatrixInstructions& instructions);

// A thread's memory for multiply_by_matrices.
struct MatrixScratch {
  uint32_t* left;             // room for kMatrixLeft pairs
  uint32_t* right;            // room for kMatrixRight pairs
  const float* of = nullptr;  // the first value of the rows that `left` holds whole; null: none
};
constexpr int64_t kMatrixRows = 256;         // at most, of one call
constexpr int64_t kMatrixLeft = 256 * 1024;  // 1 MiB, of the second-level cache
constexpr int64_t kMatrixRight = 8 * 1024;   // 32 KiB, of the first-level cache
constexpr int64_t kMatrixDepth = kMatrixRight / (kMatrixPairs * 2 * kMatrixSide) * kBlockDepth;

// The right-hand side: right(j, k0, depth) points to bfloat16 [depth, 32], columns [j, j + 32) of
// the values of k from k0 on, which stay until the next call. depth: at most kMatrixDepth.
using PanelOf = std::function<const BFloat16Bits*(int64_t j, int64_t k0, int64_t depth)>;

// c[rows, columns] = a b (k values deep), or c + a b: a is rounded to bfloat16. rows: at most
// kMatrixRows. While `scratch` is used, a does not change.
void multiply_by_matrices(const MatrixInstructions& instructions, int64_t rows, int64_t columns,
                          int64_t k, MatrixView<float> a, const PanelOf& right, float* c,
                          int64_t ldc, bool accumulate, MatrixScratch& scratch);

// What Rounding::kBlocks is computed by; kInstructions is AMX. Found out at the first call, which
// warns on standard error if it is kOtherBits.
Bfloat16Products matrix_products();

}  // namespace temper::kernels
