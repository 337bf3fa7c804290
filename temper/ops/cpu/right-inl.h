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

#include "temper/ops/cpu/quantized.h"
#include "temper/ops/cpu/tile-inl.h"

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

// to[i * kPanel + j] = from[i + j * stride] for i < 4 and j < 4.
inline void transpose_four(const float* from, int64_t stride, float* to) {
#if TEMPER_HAS_FMA
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + stride),
             c = hn::LoadU(d, from + 2 * stride), e = hn::LoadU(d, from + 3 * stride);
  const auto ac = hn::InterleaveLower(d, a, c), be = hn::InterleaveLower(d, b, e);
  const auto ac_high = hn::InterleaveUpper(d, a, c), be_high = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, ac, be), d, to);
  hn::StoreU(hn::InterleaveUpper(d, ac, be), d, to + kPanel);
  hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + 2 * kPanel);
  hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + 3 * kPanel);
#else
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) to[i * kPanel + j] = from[i + j * stride];
#endif
}

constexpr int kHalfPanel = kPanel / 2;

#if TEMPER_HAS_FMA
// The values of codes, `kLanes` at a time. Made once for a loop over codes.
template <Code kCode>
struct CodeValues;

template <>
struct CodeValues<Code::kInt8> {
  CodeValues() {}
  hn::Vec<D> at(D d, const uint8_t* codes) const {
    const hn::Rebind<int32_t, D> wide;
    const hn::Rebind<int8_t, D> narrow;
    return hn::ConvertTo(
        d, hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const int8_t*>(codes))));
  }
};

template <>
struct CodeValues<Code::kNf4> {
  using Wide = hn::Rebind<uint32_t, D>;
  hn::Vec<D> lower, upper;  // the 16 values, in one vector or in two
  // Written out: what the compiler writes itself is not compiled for the target.
  CodeValues()
      : lower(hn::LoadU(D(), nf4_values())),
        upper(hn::LoadU(D(), nf4_values() + (kLanes == 8 ? 8 : 0))) {}

  // Of the low or the high halves of `kLanes` bytes.
  static hn::Vec<Wide> pairs(D, const uint8_t* codes) {
    const hn::Rebind<uint8_t, D> narrow;
    return hn::PromoteTo(Wide(), hn::LoadU(narrow, codes));
  }
  // index: 0 to 15 in each lane.
  hn::Vec<D> at(D d, hn::Vec<Wide> index) const {
    const Wide wide;
    if constexpr (kLanes == 16) {
      return hn::TableLookupLanes(lower, hn::IndicesFromVec(d, index));
    } else if constexpr (kLanes == 8) {
      const auto in_half = hn::IndicesFromVec(d, hn::And(index, hn::Set(wide, 7)));
      const auto bit_three = hn::BitCast(d, hn::ShiftLeft<28>(index));  // as the sign
      return hn::IfNegativeThenElse(bit_three, hn::TableLookupLanes(upper, in_half),
                                    hn::TableLookupLanes(lower, in_half));
    } else {
      alignas(64) uint32_t each[kLanes];
      alignas(64) float value[kLanes];
      hn::Store(index, wide, each);
      for (int i = 0; i < kLanes; ++i) value[i] = nf4_values()[each[i]];
      return hn::Load(d, value);
    }
  }
};
#endif

// to[i * kPanel + r] = W[panel * kPanel + r, i0 + i] for i < depth.
template <Code kCode>
void unpack_panel(const QuantizedMatrix& w, int64_t panel, int64_t i0, int64_t depth, float* to) {
  constexpr int kBytes = kCode == Code::kNf4 ? kHalfPanel : kPanel;  // of an index
  const uint8_t* codes = w.codes + (panel * w.width + i0) * kBytes;
  for (int64_t i = 0; i < depth;) {
    const int64_t group = (i0 + i) / w.group, end = std::min(depth, (group + 1) * w.group - i0);
    const float* scales = w.scales + (panel * (w.width / w.group) + group) * kPanel;
#if TEMPER_HAS_FMA
    const D d;
    constexpr int kVectors = kPanel / kLanes;
    const CodeValues<kCode> value;
    hn::Vec<D> scale[kVectors];
    for (int v = 0; v < kVectors; ++v) scale[v] = hn::LoadU(d, scales + v * kLanes);
    for (; i < end; ++i, codes += kBytes) {
      float* out = to + i * kPanel;
      if constexpr (kCode == Code::kNf4) {
        constexpr int kHalf = kVectors / 2;
        for (int v = 0; v < kHalf; ++v) {
          const auto both = value.pairs(d, codes + v * kLanes);
          const auto low = hn::And(both, hn::Set(hn::Rebind<uint32_t, D>(), 15));
          const auto high = hn::ShiftRight<4>(both);
          hn::StoreU(hn::Mul(value.at(d, low), scale[v]), d, out + v * kLanes);
          hn::StoreU(hn::Mul(value.at(d, high), scale[v + kHalf]), d,
                     out + kHalfPanel + v * kLanes);
        }
      } else {
        for (int v = 0; v < kVectors; ++v)
          hn::StoreU(hn::Mul(value.at(d, codes + v * kLanes), scale[v]), d, out + v * kLanes);
      }
    }
#else
    for (; i < end; ++i, codes += kBytes) {
      for (int r = 0; r < kPanel; ++r) {
        float value;
        if constexpr (kCode == Code::kNf4)
          value = nf4_values()[r < kHalfPanel ? codes[r] & 15 : codes[r - kHalfPanel] >> 4];
        else
          value = static_cast<float>(static_cast<int8_t>(codes[r]));
        to[i * kPanel + r] = value * scales[r];
      }
    }
#endif
  }
}

// Wᵀ: k runs along W's width, columns are its rows.
template <Code kCode>
struct RowCodes {
  static constexpr bool kUnpacks = true;
  const QuantizedMatrix& w;
  int64_t first_panel;
  float* scratch;

  RightBlock<float> block(int64_t j, int64_t width, int64_t k0, int64_t depth) const {
    for (int64_t p = 0; p * kPanel < width; ++p)
      unpack_panel<kCode>(w, first_panel + j / kPanel + p, k0, depth, scratch + p * depth * kPanel);
    return {scratch, depth * kPanel};
  }
};

// W: k runs along its rows (k0 is a multiple of kPanel), columns are indices along its width.
template <Code kCode>
struct ColumnCodes {
  static constexpr bool kUnpacks = true;
  const QuantizedMatrix& w;
  int64_t first;
  float* scratch;

  RightBlock<float> block(int64_t j, int64_t width, int64_t k0, int64_t depth) const {
    alignas(64) float square[kPanel * kPanel];  // [index][row], then turned
    for (int64_t p = 0; p * kPanel < width; ++p) {
      const int64_t i0 = first + j + p * kPanel, indices = std::min<int64_t>(kPanel, w.width - i0);
      float* panel = scratch + p * depth * kPanel;
      if (indices < kPanel) std::fill(panel, panel + depth * kPanel, 0.0f);
      for (int64_t r0 = 0; r0 < depth; r0 += kPanel) {
        unpack_panel<kCode>(w, (k0 + r0) / kPanel, i0, indices, square);
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

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
