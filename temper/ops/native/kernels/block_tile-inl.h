// The register tile of Rounding::kBlocks (gemm.h) in float32 instructions, once per SIMD target.
// No include guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_BLOCK_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BLOCK_TILE_INL_H
#undef TEMPER_BLOCK_TILE_INL_H
#else
#define TEMPER_BLOCK_TILE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Each row has two chains: 20 of 32 registers, or 12 of 16.
constexpr int kBlockTileRows = kPanel == 32 ? 5 : 3;

// c[kRows, kPanel] = its values if from_c, else 0, plus a b for `depth` values of k, which begin a
// block. a is rounded; row i of it is at a + i * a_row, its k-th value a_k floats further.
template <class B, int kRows>
HWY_NOINLINE void block_tile(int64_t depth, const float* a, int64_t a_row, int64_t a_k, const B* b,
                             float* c, int64_t c_row, bool from_c) {
#if TEMPER_HAS_FMA
  const D d;
  constexpr int kVectors = kPanel / kLanes;
  for (int64_t k0 = 0; k0 < depth; k0 += kBlockDepth) {
    hn::Vec<D> chain[2][kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) chain[0][i][v] = chain[1][i][v] = hn::Zero(d);
    const auto add = [&](int64_t k, hn::Vec<D>(&sum)[kRows][kVectors]) HWY_ATTR {
      hn::Vec<D> right[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) right[v] = load_right(d, b + k * kPanel + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const hn::Vec<D> left = hn::Set(d, a[i * a_row + k * a_k]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    };
    const int64_t end = std::min(depth, k0 + kBlockDepth);
    int64_t k = k0;
    for (; k + 1 < end; k += 2) {
      add(k, chain[0]);
      add(k + 1, chain[1]);
    }
    if (k < end) add(k, chain[0]);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        float* to = c + i * c_row + v * kLanes;
        const hn::Vec<D> before = from_c || k0 > 0 ? hn::LoadU(d, to) : hn::Zero(d);
        hn::StoreU(hn::Add(before, hn::Add(chain[0][i][v], chain[1][i][v])), d, to);
      }
    }
  }
#else
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kPanel; ++j) {
      float sum = from_c ? c[i * c_row + j] : 0.0f;
      for (int64_t k0 = 0; k0 < depth; k0 += kBlockDepth) {
        float chain[2] = {0.0f, 0.0f};
        for (int64_t k = k0; k < std::min(depth, k0 + kBlockDepth); ++k)
          chain[k % 2] =
              std::fma(a[i * a_row + k * a_k], to_float(b[k * kPanel + j]), chain[k % 2]);
        sum += chain[0] + chain[1];
      }
      c[i * c_row + j] = sum;
    }
  }
#endif
}

template <class B, int kRows = kBlockTileRows>
void block_tile_of(int rows, int64_t depth, const float* a, int64_t a_row, int64_t a_k, const B* b,
                   float* c, int64_t c_row, bool from_c) {
  if constexpr (kRows > 1)
    if (rows < kRows)
      return block_tile_of<B, kRows - 1>(rows, depth, a, a_row, a_k, b, c, c_row, from_c);
  block_tile<B, kRows>(depth, a, a_row, a_k, b, c, c_row, from_c);
}

// As tile_row (tile-inl.h). depth > 0.
template <class B>
inline void block_tile_row(int rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                           int64_t a_k, const B* b, int64_t panel_stride, float* c, int64_t ldc,
                           bool from_c) {
  for (int i = 0; i < rows; i += kBlockTileRows) {
    const int height = std::min(kBlockTileRows, rows - i);
    const float* left = a + i * a_row;
    for (int64_t j = 0; j < columns; j += kPanel) {
      const B* panel = b + j / kPanel * panel_stride;
      float* to = c + i * ldc + j;
      if (j + kPanel <= columns) {
        block_tile_of(height, depth, left, a_row, a_k, panel, to, ldc, from_c);
        continue;
      }
      // The last panel is padded: compute it aside and keep the columns that exist.
      alignas(64) float aside[kBlockTileRows * kPanel] = {};
      const int64_t width = columns - j;
      for (int r = 0; r < height && from_c; ++r)
        std::copy_n(to + r * ldc, width, aside + r * kPanel);
      block_tile_of(height, depth, left, a_row, a_k, panel, aside, kPanel, from_c);
      for (int r = 0; r < height; ++r) std::copy_n(aside + r * kPanel, width, to + r * ldc);
    }
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
