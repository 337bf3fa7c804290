// Right-hand sides of matrix products, once per SIMD target. One is asked for blocks:
//     block(j, width, k0, depth): columns [j, j + width) of k0 to k0 + depth, as panels of kPanel
// columns: {where the first panel's block begins, how far apart the panels are}.
// No include guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_RIGHT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_RIGHT_INL_H
#undef TEMPER_RIGHT_INL_H
#else
#define TEMPER_RIGHT_INL_H
#endif

#include <hwy/highway.h>

#include "temper/ops/native/kernels/codes-inl.h"
#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

template <class B>
struct RightBlock {
  const B* data;
  int64_t panel_stride;
};

// Panels that lie in memory as the tile reads them.
template <class B>
struct PackedRight {
  static constexpr bool kUnpacks = false;
  const B* panels;
  int64_t panel_stride;

  RightBlock<B> block(int64_t j, int64_t, int64_t k0, int64_t) const {
    return {panels + j / kPanel * panel_stride + k0 * kPanel, panel_stride};
  }
};

// to[i * to_stride + j] = from[i + j * stride] for i < 4 and j < 4.
inline void transpose_four(const float* from, int64_t stride, float* to,
                           int64_t to_stride = kPanel) {
#if TEMPER_HAS_FMA
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + stride),
             c = hn::LoadU(d, from + 2 * stride), e = hn::LoadU(d, from + 3 * stride);
  const auto ac = hn::InterleaveLower(d, a, c), be = hn::InterleaveLower(d, b, e);
  const auto ac_high = hn::InterleaveUpper(d, a, c), be_high = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, ac, be), d, to);
  hn::StoreU(hn::InterleaveUpper(d, ac, be), d, to + to_stride);
  hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + 3 * to_stride);
#else
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) to[i * to_stride + j] = from[i + j * stride];
#endif
}

// Wᵀ: k runs along W's width, columns are its rows.
struct RowCodes {
  static constexpr bool kUnpacks = true;
  const QuantizedMatrix& w;
  const CodeKernels& kernels;
  int64_t first_panel;
  float* scratch;

  RightBlock<float> block(int64_t j, int64_t width, int64_t k0, int64_t depth) const {
    for (int64_t p = 0; p * kPanel < width; ++p)
      kernels.unpack(w, first_panel + j / kPanel + p, k0, depth, scratch + p * depth * kPanel);
    return {scratch, depth * kPanel};
  }

  // The whole product of few rows, without unpacking; false where that is not for them.
  bool multiply_few(int64_t rows, int64_t columns, MatrixView<float> a, float* c, int64_t ldc,
                    bool accumulate) const {
    if (rows > kernels.most_rows || a.col_stride != 1 || !in_fours(w.group) || !has_exact_values(w))
      return false;
    kernels.rows(static_cast<int>(rows), w, first_panel, columns, a.data, a.row_stride, c, ldc,
                 accumulate);
    return true;
  }
};

// W: k runs along its rows (k0 is a multiple of kPanel), columns are indices along its width.
struct ColumnCodes {
  static constexpr bool kUnpacks = true;
  const QuantizedMatrix& w;
  const CodeKernels& kernels;
  int64_t first;
  float* scratch;

  bool multiply_few(int64_t, int64_t, MatrixView<float>, float*, int64_t, bool) const {
    return false;
  }

  RightBlock<float> block(int64_t j, int64_t width, int64_t k0, int64_t depth) const {
    alignas(64) float square[kPanel * kPanel];  // [index][row], then turned
    for (int64_t p = 0; p * kPanel < width; ++p) {
      const int64_t i0 = first + j + p * kPanel, indices = std::min<int64_t>(kPanel, w.width - i0);
      float* panel = scratch + p * depth * kPanel;
      if (indices < kPanel) std::fill(panel, panel + depth * kPanel, 0.0f);
      for (int64_t r0 = 0; r0 < depth; r0 += kPanel) {
        kernels.unpack(w, (k0 + r0) / kPanel, i0, indices, square);
        const int64_t rows = std::min<int64_t>(kPanel, depth - r0);
        turn(square, rows, indices, panel + r0 * kPanel);
      }
    }
    return {scratch, depth * kPanel};
  }

 private:
  // to[r * kPanel + i] = square[i * kPanel + r].
  static void turn(const float* square, int64_t rows, int64_t indices, float* to) {
    int64_t i = 0;
    for (; i + 4 <= indices && rows == kPanel; i += 4)
      for (int64_t r = 0; r < kPanel; r += 4)
        transpose_four(square + i * kPanel + r, kPanel, to + r * kPanel + i);
    for (; i < indices; ++i)
      for (int64_t r = 0; r < rows; ++r) to[r * kPanel + i] = square[i * kPanel + r];
  }
};

// The same with values rounded to bfloat16.
template <class Codes>
struct RoundedCodes {
  static constexpr bool kUnpacks = true;
  Codes codes;

  bool multiply_few(int64_t, int64_t, MatrixView<float>, float*, int64_t, bool) const {
    return false;
  }
  RightBlock<float> block(int64_t j, int64_t width, int64_t k0, int64_t depth) const {
    const RightBlock<float> exact = codes.block(j, width, k0, depth);
    const int64_t count = (width + kPanel - 1) / kPanel * depth * kPanel;
    for (int64_t i = 0; i < count; ++i)
      codes.scratch[i] = std::bit_cast<float>(rounded_bits(codes.scratch[i]));
    return exact;
  }
};

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
