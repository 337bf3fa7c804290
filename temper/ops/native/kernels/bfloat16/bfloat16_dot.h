// Products of Rounding::kChain (temper/ops/native/kernels/gemm.h) by the processor's own
// instruction for bfloat16, where it has one that computes the same bits: AVX512-BF16's VDPBF16PS,
// two steps of the chain at once.
#pragma once

#include "temper/ops/native/kernels/dot_tile-inl.h"
#include "temper/ops/native/kernels/gemm.h"

namespace temper::kernels {

using DotTile = decltype(&avx512_dot_tile);

// Whether the tile computes the chain of temper/ops/native/kernels/gemm.h with denormal numbers
// zero, bit for bit: tried on products of many magnitudes, denormal ones and zeros of both signs
// among them.
bool keeps_the_chain(DotTile tile);

// a[rows, depth], rounded to bfloat16 -> pairs [rows, ceil(depth / 2)]: the value of an even k in
// the high half, of the next one in the low half, which after an odd depth is -0: it changes no
// sum.
void pack_pairs(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* pairs);

// Rows of a as the tile reads them: packed for one range of columns, and kept for the next.
struct DotLeft {
  uint32_t* pairs;            // room for kDotPairs
  const float* of = nullptr;  // the first value of the rows that it holds whole; null: none
};
constexpr int64_t kDotPairs = 96 * 1024;  // 384 KiB, of the second-level cache

// c[rows, columns] = a b (k values deep), or c + a b: a is rounded to bfloat16; b is packed in
// panels of 32 columns, from the first one on, `panel_stride` values apart. rows: at most
// kDotPairs. While `left` is used, a does not change.
void multiply_by_dot(DotTile tile, int64_t rows, int64_t columns, int64_t k, MatrixView<float> a,
                     const BFloat16Bits* b, int64_t panel_stride, float* c, int64_t ldc,
                     bool accumulate, DotLeft& left);

// Whether the tile takes no longer than float32 instructions do for the same product. Intel's
// processors do half as many VDPBF16PS as fused multiply-adds in a cycle.
bool is_quicker(DotTile tile);

enum class Bfloat16Products {
  kInstructions,   // AVX512-BF16
  kSlower,         // it has one, and float32 instructions are quicker
  kNoInstruction,  // the processor, the system or the build has none: float32 instructions
  kOtherBits,      // it has one, and keeps_the_chain() is false of it: float32 instructions
};
// Found out at the first call, which warns on standard error if it is kOtherBits.
Bfloat16Products bfloat16_products();

}  // namespace temper::kernels
