// The register tile under every matrix product and under attention, once per SIMD target.
// No include guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_TILE_INL_H
#undef TEMPER_TILE_INL_H
#else
#define TEMPER_TILE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "temper/ops/native/kernels/attention/cache_dtype.h"
#include "temper/ops/native/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef TEMPER_HAS_FMA
#define TEMPER_HAS_FMA (HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR)

#if TEMPER_HAS_FMA
using D = hn::CappedTag<float, 16>;
constexpr int kLanes = HWY_MIN(16, HWY_MAX_BYTES / 4);
#endif
#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
constexpr int kPanel = 32, kTileRows = 12;  // 24 of 32 registers hold the tile
#else
constexpr int kPanel = 16, kTileRows = 6;  // 12 of 16
#endif
#if TEMPER_HAS_FMA
constexpr int kPanelVectors = kPanel / kLanes;
#endif

#if TEMPER_HAS_FMA
inline hn::Vec<D> load_right(D d, const float* from) { return hn::LoadU(d, from); }
inline hn::Vec<D> load_right(D d, const BFloat16Bits* from) {
  const hn::Rebind<uint32_t, D> wide;
  const hn::Rebind<uint16_t, D> narrow;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from))));
}
inline hn::Vec<D> load_right(D d, const Float16Bits* from) {
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
}
#endif

// to_bfloat16 as the upper half of a float's bits. Without branches, so that the compiler makes
// vectors of loops over it.
inline uint32_t rounded_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t nan = bits | 0x400000u, near = bits + 0x7fffu + (bits >> 16 & 1);
  return ((bits & 0x7fffffffu) > 0x7f800000u ? nan : near) & 0xffff0000u;
}

// B is float, or bfloat16 or float16 that is widened as it is read.
// One tile: kRows rows by kPanels panels over `depth` values of k. Row i of a is at a + i * a_row,
// its k-th value a_k floats further.
template <class B, int kRows, int kPanels>
HWY_NOINLINE void tile(int64_t depth, const float* a, int64_t a_row, int64_t a_k, const B* b,
                       int64_t panel_stride, float* c, int64_t c_row, bool from_c) {
#if TEMPER_HAS_FMA
  const D d;
  constexpr int kVectors = kPanels * kPanel / kLanes, kPerPanel = kPanel / kLanes;
  hn::Vec<D> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sum[i][v] = from_c ? hn::LoadU(d, c + i * c_row + v * kLanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<D> right[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      right[v] =
          load_right(d, b + (v / kPerPanel) * panel_stride + k * kPanel + (v % kPerPanel) * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const hn::Vec<D> left = hn::Set(d, a[i * a_row + k * a_k]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, c + i * c_row + v * kLanes);
  }
#else
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kPanels * kPanel; ++j) {
      const B* right = b + (j / kPanel) * panel_stride + j % kPanel;
      float sum = from_c ? c[i * c_row + j] : 0.0f;
      for (int64_t k = 0; k < depth; ++k)
        sum = std::fma(a[i * a_row + k * a_k], to_float(right[k * kPanel]), sum);
      c[i * c_row + j] = sum;
    }
  }
#endif
}

template <class B>
using TileFunction = void (*)(int64_t, const float*, int64_t, int64_t, const B*, int64_t, float*,
                              int64_t, bool);

// Few rows leave the multiply-add pipeline waiting on its own sums: take more panels at once.
constexpr int panels_at_once(int rows) { return rows <= 1 ? 4 : 2 * rows <= kTileRows ? 2 : 1; }

template <class B, int kRows>
TileFunction<B> tile_for(int rows, bool wide) {
  if (rows == kRows) return wide ? &tile<B, kRows, panels_at_once(kRows)> : &tile<B, kRows, 1>;
  if constexpr (kRows > 1) return tile_for<B, kRows - 1>(rows, wide);
  return nullptr;
}

// Columns [0, columns) of `rows` rows of c over one block of k. b points at the block within the
// first panel.
template <class B>
inline void tile_row(int rows, int64_t columns, int64_t depth, const float* a, int64_t a_row,
                     int64_t a_k, const B* b, int64_t panel_stride, float* c, int64_t ldc,
                     bool from_c) {
  const int at_once = panels_at_once(rows);
  const TileFunction<B> wide = tile_for<B, kTileRows>(rows, true),
                        narrow = tile_for<B, kTileRows>(rows, false);
  int64_t j = 0;
  for (; j + at_once * kPanel <= columns; j += at_once * kPanel)
    wide(depth, a, a_row, a_k, b + j / kPanel * panel_stride, panel_stride, c + j, ldc, from_c);
  for (; j + kPanel <= columns; j += kPanel)
    narrow(depth, a, a_row, a_k, b + j / kPanel * panel_stride, panel_stride, c + j, ldc, from_c);
  if (j == columns) return;
  // The last panel is padded: compute it aside and keep the columns that exist.
  alignas(64) float aside[kTileRows * kPanel];
  const size_t bytes = static_cast<size_t>(columns - j) * sizeof(float);
  if (from_c) {
    for (int i = 0; i < rows; ++i) std::memcpy(aside + i * kPanel, c + i * ldc + j, bytes);
    for (int i = 0; i < rows; ++i)
      std::fill(aside + i * kPanel + (columns - j), aside + (i + 1) * kPanel, 0.0f);
  }
  narrow(depth, a, a_row, a_k, b + j / kPanel * panel_stride, panel_stride, aside, kPanel, from_c);
  for (int i = 0; i < rows; ++i) std::memcpy(c + i * ldc + j, aside + i * kPanel, bytes);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
