// One task of a matrix product, once per SIMD target. Blocking after Goto and van de Geijn,
// "Anatomy of high-performance matrix multiplication" (2008), with longer blocks of k: a panel of b
// and a block of a stay in the second-level cache, from which a register tile of c reads them as
// fast as it computes. No include guard in the usual form: foreach_target.h includes it once for
// each target.
#if defined(TEMPER_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BLOCKS_INL_H
#undef TEMPER_BLOCKS_INL_H
#else
#define TEMPER_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "temper/ops/native/kernels/bfloat16/bfloat16_dot.h"
#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"
#include "temper/ops/native/kernels/block_tile-inl.h"
#include "temper/ops/native/kernels/pack-inl.h"
#include "temper/ops/native/kernels/right-inl.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// A block of a (384 KiB) and a panel of b (64 or 128 KiB). Between blocks of k the tile is stored
// and loaded again, from where c lies: in blocks of 256 that costs a seventh of the time.
constexpr int64_t kBlockK = 1024, kBlockRows = 96;
// So few rows take as long as reading b takes: several panels side by side, far down k.
constexpr int64_t kStreamRows = 4 * kTileRows, kStreamK = 2048;
// Values of a right-hand side of codes that are unpacked at once; for so few rows they stay in the
// first-level cache.
constexpr int64_t kUnpackedFloats = kBlockK * kPanel, kStreamUnpackedFloats = 256 * kPanel;

// Denormal numbers are zero in this thread while one lives.
class FlushDenormals {
 public:
#if HWY_ARCH_X86
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // FTZ and DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif HWY_ARCH_ARM_A64
  // FZ, of what is read and what results.
  FlushDenormals() {
    uint64_t flushing;
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    flushing = before_ | (uint64_t{1} << 24);
    asm volatile("msr fpcr, %0" : : "r"(flushing));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#else
#error "no way to make denormal numbers zero on this processor"
#endif
};

// c[rows, columns] for one task: all of k, in blocks. `right` is the right-hand side
// (right-inl.h).
template <class Right>
void multiply(int64_t rows, int64_t columns, int64_t k, MatrixView<float> a, const Right& right,
              float* c, int64_t ldc, bool accumulate, Rounding rounding, float* left) {
  const bool round = rounding != Rounding::kNone;
  // Rows are read as they lie. Where it is the values of one row that lie apart, a copy pays if
  // many panels read it.
  const bool apart = a.col_stride != 1 && rows > kTileRows && columns > 2 * kPanel;
  const bool turned = apart || (round && a.col_stride != 1);  // copied tile by tile
  const bool stream = !apart && rows <= kStreamRows;
  const int64_t tallest = stream ? kTileRows / 2 : kTileRows;
  const int64_t tiles = (rows + tallest - 1) / tallest, tile = (rows + tiles - 1) / tiles;
  // The part of b that one pass over the rows reads stays in the cache for the next tile.
  int64_t block_k = stream ? kStreamK : kBlockK;
  int64_t at_once = tiles == 1 ? columns : stream ? 2 * kPanel : kPanel;
  if constexpr (Right::kUnpacks) {
    at_once = panels_at_once(static_cast<int>(tile)) * kPanel;
    block_k = (stream ? kStreamUnpackedFloats : kUnpackedFloats) / at_once;
  }
  const auto multiply_block = [&](int64_t k0, int64_t j) {
    const int64_t depth = std::min(block_k, k - k0), width = std::min(at_once, columns - j);
    const auto [b, panel_stride] = right.block(j, width, k0, depth);
    using Value = std::remove_const_t<std::remove_pointer_t<decltype(b)>>;
    for (int64_t i = 0; i < rows; i += tile) {
      const int height = static_cast<int>(std::min(tile, rows - i));
      MatrixView<float> part{a.data + i * a.row_stride + k0 * a.col_stride, a.row_stride,
                             a.col_stride};
      if (turned)
        part = {left + i * depth, 1, height};
      else if (round)
        part = {left + i * depth, depth, 1};
      const auto by = rounding == Rounding::kBlocks ? block_tile_row<Value> : tile_row<Value>;
      by(height, width, depth, part.data, part.row_stride, part.col_stride, b, panel_stride,
         c + i * ldc + j, ldc, accumulate || k0 > 0);
    }
  };
  // Few rows: codes are read in the order in which they lie.
  if (Right::kUnpacks && stream && !round) {
    for (int64_t j = 0; j < columns; j += at_once)
      for (int64_t k0 = 0; k0 < k; k0 += block_k) multiply_block(k0, j);
    return;
  }
  for (int64_t k0 = 0; k0 < k; k0 += block_k) {
    const int64_t depth = std::min(block_k, k - k0);
    const MatrixView<float> part{a.data + k0 * a.col_stride, a.row_stride, a.col_stride};
    if (turned && round)
      pack_left<true>(part, rows, depth, tile, left);
    else if (turned)
      pack_left<false>(part, rows, depth, tile, left);
    else if (round)
      for (int64_t i = 0; i < rows; ++i)
        copy_values<true>(part.data + i * a.row_stride, depth, left + i * depth);
    for (int64_t j = 0; j < columns; j += at_once) multiply_block(k0, j);
  }
}

// The right-hand sides of Rounding::kBlocks.
template <class Right>
constexpr bool kHasBlocks = std::is_same_v<Right, PackedRight<BFloat16Bits>>;
template <class Codes>
constexpr bool kHasBlocks<RoundedCodes<Codes>> = true;

// Whether the product of so many rows is computed by multiply_by_matrices: fewer fill too little of
// a tile.
template <class Right>
bool by_matrices(int64_t rows, Rounding rounding) {
  return kHasBlocks<Right> && kPanel == 2 * kMatrixSide && rounding == Rounding::kBlocks &&
         rows > 4 && matrix_products() == Bfloat16Products::kInstructions;
}

// Calls body with the right-hand side as multiply_by_matrices reads it.
template <class Body>
void with_panels(const PackedRight<BFloat16Bits>& right, Body body) {
  body(
      [&](int64_t j, int64_t k0, int64_t depth) { return right.block(j, kPanel, k0, depth).data; });
}
template <class Codes, class Body>
void with_panels(const RoundedCodes<Codes>& right, Body body) {
  alignas(64) BFloat16Bits panel[kMatrixDepth * kPanel];
  body([&](int64_t j, int64_t k0, int64_t depth) {
    copy_row(right.codes.block(j, kPanel, k0, depth).data, depth * kPanel, panel);
    return panel;
  });
}

// A thread's memory for the tasks of one product.
struct TaskScratch {
  float* left;
  DotLeft dot;
  MatrixScratch matrix;
};

// The task's product by the processor's instructions for its rounding, or of few rows by codes as
// they lie. False: neither is for it, and c is as before.
template <class Right>
bool multiply_directly(int64_t rows, int64_t columns, int64_t k, MatrixView<float> a,
                       const Right& right, float* c, int64_t ldc, bool accumulate,
                       Rounding rounding, TaskScratch& scratch) {
  if constexpr (kHasBlocks<Right>) {
    if (by_matrices<Right>(rows, rounding)) {
      with_panels(right, [&](const PanelOf& panels) {
        multiply_by_matrices(kAmx, rows, columns, k, a, panels, c, ldc, accumulate, scratch.matrix);
      });
      return true;
    }
  }
  if constexpr (Right::kUnpacks) {
    return right.multiply_few(rows, columns, a, c, ldc, accumulate);
  } else if constexpr (kPanel == kDotColumns && std::is_same_v<Right, PackedRight<BFloat16Bits>>) {
    if (rounding == Rounding::kChain && bfloat16_products() == Bfloat16Products::kInstructions) {
      multiply_by_dot(avx512_dot_tile, rows, columns, k, a, right.panels, right.panel_stride, c,
                      ldc, accumulate, scratch.dot);
      return true;
    }
  }
  return false;
}

// One task of a product.
template <class Right>
void block(int64_t rows, int64_t columns, int64_t k, MatrixView<float> a, const Right& right,
           float* c, int64_t ldc, bool accumulate, const float* bias, Rounding rounding,
           TaskScratch& scratch) {
  if (!multiply_directly(rows, columns, k, a, right, c, ldc, accumulate, rounding, scratch))
    multiply(rows, columns, k, a, right, c, ldc, accumulate, rounding, scratch.left);
  if (k == 0 && !accumulate)
    for (int64_t i = 0; i < rows; ++i) std::fill(c + i * ldc, c + i * ldc + columns, 0.0f);
  if (bias)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] += bias[j];
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
