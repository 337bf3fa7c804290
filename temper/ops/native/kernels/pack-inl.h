// Copies of the factors of a matrix product in the order in which the tile reads them, once per
// SIMD target. No include guard in the usual form: foreach_target.h includes it once for each
// target.
#if defined(TEMPER_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_PACK_INL_H
#undef TEMPER_PACK_INL_H
#else
#define TEMPER_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"
#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/right-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// to[0, count) = from, rounded to bfloat16 if asked for.
template <bool kRound>
void copy_values(const float* from, int64_t count, float* to) {
  if constexpr (kRound)
    for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(rounded_bits(from[i]));
  else
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

// Copies a[rows, depth] tile by tile: `tile` rows side by side for each k.
template <bool kRound>
void pack_left(MatrixView<float> a, int64_t rows, int64_t depth, int64_t tile, float* out) {
  for (int64_t i0 = 0; i0 < rows; i0 += tile) {
    const int64_t height = std::min(tile, rows - i0);
    const float* from = a.data + i0 * a.row_stride;
    float* to = out + i0 * depth;
    if (a.row_stride == 1 && height == kTileRows) {  // constant size: a few vectors
      for (int64_t k = 0; k < depth; ++k)
        copy_values<kRound>(from + k * a.col_stride, kTileRows, to + k * kTileRows);
    } else {
      for (int64_t i = 0; i < height; ++i)
        for (int64_t k = 0; k < depth; ++k)
          copy_values<kRound>(from + i * a.row_stride + k * a.col_stride, 1, to + k * height + i);
    }
  }
}

inline uint32_t pair_of(float first, float second) {
  return rounded_bits(first) | rounded_bits(second) >> 16;
}
inline uint32_t pair_of(float first) { return rounded_bits(first) | 0x8000u; }

inline void pack_pairs_of_row(const float* from, int64_t stride, int64_t depth, uint32_t* to) {
  const auto pack = [&](int64_t by) {
    for (int64_t p = 0; p < depth / 2; ++p)
      to[p] = pair_of(from[2 * p * by], from[(2 * p + 1) * by]);
  };
  if (stride == 1)
    pack(1);  // a constant, so that the compiler makes vectors of it
  else
    pack(stride);
  if (depth % 2 == 1) to[depth / 2] = pair_of(from[(depth - 1) * stride]);
}

// The values of one k lie side by side, `stride` from those of the next: pairs of 16 rows are made
// at once, in a square that is then written row by row. `height` rows, at most 16.
inline void pack_pairs_of_columns(const float* from, int64_t stride, int64_t height, int64_t depth,
                                  uint32_t* to, int64_t row_pairs) {
  constexpr int64_t kSide = 16;
  const int64_t pairs = (depth + 1) / 2;
  alignas(64) uint32_t square[kSide * kSide];
  for (int64_t p0 = 0; p0 < pairs; p0 += kSide) {
    const int64_t count = std::min(kSide, pairs - p0);
    for (int64_t p = 0; p < count; ++p) {
      const float* first = from + 2 * (p0 + p) * stride;
      const float* second = first + stride;
      uint32_t* of = square + p * kSide;
      if (2 * (p0 + p) + 1 == depth)
        for (int64_t i = 0; i < height; ++i) of[i] = pair_of(first[i]);
      else if (height == kSide)  // a constant, so that the compiler makes vectors of it
        for (int64_t i = 0; i < kSide; ++i) of[i] = pair_of(first[i], second[i]);
      else
        for (int64_t i = 0; i < height; ++i) of[i] = pair_of(first[i], second[i]);
    }
    if (height == kSide && count == kSide) {
      for (int64_t i = 0; i < kSide; i += 4)
        for (int64_t p = 0; p < kSide; p += 4)
          transpose_four(reinterpret_cast<const float*>(square + p * kSide + i), kSide,
                         reinterpret_cast<float*>(to + i * row_pairs + p0 + p), row_pairs);
    } else {
      for (int64_t i = 0; i < height; ++i)
        for (int64_t p = 0; p < count; ++p) to[i * row_pairs + p0 + p] = square[p * kSide + i];
    }
  }
}

// `height` rows, at most 16.
inline void pack_pairs_of_rows(MatrixView<float> a, int64_t height, int64_t depth, uint32_t* to,
                               int64_t row_pairs) {
  if (a.row_stride == 1) {
    pack_pairs_of_columns(a.data, a.col_stride, height, depth, to, row_pairs);
    return;
  }
  for (int64_t r = 0; r < height; ++r)
    pack_pairs_of_row(a.data + r * a.row_stride, a.col_stride, depth, to + r * row_pairs);
}

void PackPairs(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* to) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t i = 0; i < rows; i += 16)
    pack_pairs_of_rows({a.data + i * a.row_stride, a.row_stride, a.col_stride},
                       std::min<int64_t>(16, rows - i), depth, to + i * pairs, pairs);
}

void PackTiles(MatrixView<float> a, int64_t rows, int64_t depth, uint32_t* to) {
  constexpr uint32_t kNone = 0x80008000u;
  for (int64_t i = 0; i < rows; i += kMatrixSide)
    for (int64_t k = 0; k < depth; k += kBlockDepth, to += kMatrixTile) {
      const int64_t height = std::min(kMatrixSide, rows - i),
                    part = std::min(kBlockDepth, depth - k);
      if (part < kBlockDepth) std::fill(to, to + kMatrixTile, kNone);
      pack_pairs_of_rows({a.data + i * a.row_stride + k * a.col_stride, a.row_stride, a.col_stride},
                         height, part, to, kMatrixPairs);
    }
}

template <class T>
void copy_row(const T* from, int64_t count, T* to) {
  std::copy_n(from, count, to);
}
inline void copy_row(const float* from, int64_t count, BFloat16Bits* to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<BFloat16Bits>(rounded_bits(from[i]) >> 16);
}

// A panel of columns whose values lie side by side.
template <class From, class To>
void pack_columns(const From* from, int64_t stride, int64_t k, int64_t width, To* to) {
  constexpr int64_t kLine = 16;  // k at a time: one cache line of each column
  alignas(64) From turned[kLine * kPanel] = {};
  for (int64_t i0 = 0; i0 < k; i0 += kLine) {
    const int64_t height = std::min(kLine, k - i0);
    int64_t j = 0;
    if constexpr (std::is_same_v<From, float>)
      for (; height == kLine && j + 4 <= width; j += 4)
        for (int64_t i = 0; i < kLine; i += 4)
          transpose_four(from + i0 + i + j * stride, stride, turned + i * kPanel + j);
    for (; j < width; ++j)
      for (int64_t i = 0; i < height; ++i) turned[i * kPanel + j] = from[i0 + i + j * stride];
    copy_row(turned, height * kPanel, to + i0 * kPanel);
  }
}

template <class From, class To>
void PackAs(MatrixView<From> b, int64_t k, int64_t n, To* packed) {
  const int64_t panels = (n + kPanel - 1) / kPanel;
#pragma omp parallel for schedule(static) if (k * n > 32768)
  for (int64_t p = 0; p < panels; ++p) {
    To* to = packed + p * kPanel * k;
    const int64_t width = std::min<int64_t>(kPanel, n - p * kPanel);
    const From* from = b.data + p * kPanel * b.col_stride;
    if (width < kPanel) std::fill(to, to + kPanel * k, To(0));
    if (b.row_stride == 1) {
      pack_columns(from, b.col_stride, k, width, to);
    } else {
      for (int64_t i = 0; i < k; ++i) {
        if (b.col_stride == 1)
          copy_row(from + i * b.row_stride, width, to + i * kPanel);
        else
          for (int64_t j = 0; j < width; ++j)
            copy_row(from + i * b.row_stride + j * b.col_stride, 1, to + i * kPanel + j);
      }
    }
  }
}
void Pack(MatrixView<float> b, int64_t k, int64_t n, float* packed) { PackAs(b, k, n, packed); }
void PackRounded(MatrixView<float> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  PackAs(b, k, n, packed);
}
void PackBFloat16(MatrixView<BFloat16Bits> b, int64_t k, int64_t n, BFloat16Bits* packed) {
  PackAs(b, k, n, packed);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
