// The values of codes (temper/ops/native/kernels/quantized.h), and products of few rows with them,
// once per SIMD target. No include guard in the usual form: foreach_target.h includes it once for
// each target.
#if defined(TEMPER_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_CODES_INL_H
#undef TEMPER_CODES_INL_H
#else
#define TEMPER_CODES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int kHalfPanel = kPanel / 2;

template <int kBits>
// bytes of one index in a panel
constexpr int kIndexBytes = kPanel * kBits / 8;

#if TEMPER_HAS_FMA
constexpr int kPanelVectors = kPanel / kLanes;

// The values of codes, unscaled. Made once for a loop over codes; constructors are written out, as
// those that the compiler generates are not compiled for the target.
//     at: values of one index of a panel's rows: use(v, value of rows v * kLanes ...);
//     four<part>: values of four indices that stand together (in_fours), of one of kParts equal
//     parts of the rows: use(i, values[kPartVectors]).
template <int kBits>
struct CodeValues;

template <>
struct CodeValues<8> {
  static constexpr int kParts = 1, kPartVectors = kPanelVectors;
  explicit CodeValues(WeightFormat) {}
  template <class Use>
  HWY_INLINE void at(D d, const uint8_t* codes, Use use) const {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) use(v, value(d, codes + v * kLanes));
  }
  template <int kPart, class Use>
  HWY_INLINE void four(D d, const uint8_t* codes, Use use) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      hn::Vec<D> values[kPanelVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) values[v] = value(d, codes + i * kPanel + v * kLanes);
      use(i, values);
    }
  }

 private:
  static HWY_INLINE hn::Vec<D> value(D d, const uint8_t* codes) {
    const hn::Rebind<int32_t, D> wide;
    const hn::Rebind<int8_t, D> narrow;
    return hn::ConvertTo(
        d, hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const int8_t*>(codes))));
  }
};

template <>
struct CodeValues<4> {
  static constexpr int kParts = 2, kPartVectors = kPanelVectors / 2;
  using Wide = hn::Rebind<uint32_t, D>;
  const float* table;       // the 16 values
  hn::Vec<D> lower, upper;  // the same in one vector or in two
#if HWY_TARGET == HWY_AVX2
  using Bytes = hn::Repartition<uint8_t, D>;
  hn::Vec<Bytes> byte[4];  // byte j of each of the 16 values, in both blocks of 16 lanes
#endif
  explicit CodeValues(WeightFormat format)
      : table(row_of(format).values),
        lower(hn::LoadU(D(), table)),
        upper(hn::LoadU(D(), table + (kLanes == 8 ? 8 : 0))) {
#if HWY_TARGET == HWY_AVX2
    for (int j = 0; j < 4; ++j) byte[j] = hn::LoadDup128(Bytes(), four_bit_bytes(format) + 16 * j);
#endif
  }

  template <class Use>
  HWY_INLINE void at(D d, const uint8_t* codes, Use use) const {
#pragma GCC unroll 16
    for (int v = 0; v < kPartVectors; ++v) {
      use(v, value<0>(d, codes + v * kLanes));
      use(v + kPartVectors, value<1>(d, codes + v * kLanes));
    }
  }
#if HWY_TARGET == HWY_AVX2
  // Byte j of 32 values is looked up at once; what belongs together is then interleaved.
  template <int kPart, class Use>
  HWY_INLINE void four(D d, const uint8_t* codes, Use use) const {
    const Bytes bytes;
    const hn::Repartition<uint16_t, D> pairs;
    auto index = hn::LoadU(bytes, codes);
    if (kPart == 1) index = hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(pairs, index)));
    index = hn::And(index, hn::Set(bytes, 15));
    const auto b0 = hn::TableLookupBytes(byte[0], index), b1 = hn::TableLookupBytes(byte[1], index),
               b2 = hn::TableLookupBytes(byte[2], index), b3 = hn::TableLookupBytes(byte[3], index);
    const auto low_01 = hn::BitCast(pairs, hn::InterleaveLower(bytes, b0, b1)),
               low_23 = hn::BitCast(pairs, hn::InterleaveLower(bytes, b2, b3)),
               high_01 = hn::BitCast(pairs, hn::InterleaveUpper(bytes, b0, b1)),
               high_23 = hn::BitCast(pairs, hn::InterleaveUpper(bytes, b2, b3));
    const hn::Vec<D> values[4] = {hn::BitCast(d, hn::InterleaveLower(pairs, low_01, low_23)),
                                  hn::BitCast(d, hn::InterleaveUpper(pairs, low_01, low_23)),
                                  hn::BitCast(d, hn::InterleaveLower(pairs, high_01, high_23)),
                                  hn::BitCast(d, hn::InterleaveUpper(pairs, high_01, high_23))};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) use(i, values + i);
  }
#else
  template <int kPart, class Use>
  HWY_INLINE void four(D d, const uint8_t* codes, Use use) const {
    constexpr bool kSide = kPanel == 16;  // four_bits_place
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      hn::Vec<D> values[kPartVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPartVectors; ++v)
        values[v] =
            value<kPart>(d, codes + i * (kSide ? 4 : kHalfPanel) + v * (kSide ? 16 : kLanes));
      use(i, values);
    }
  }
#endif

 private:
  template <int kPart>
  HWY_INLINE hn::Vec<D> value(D d, const uint8_t* codes) const {
    const Wide wide;
    const hn::Rebind<uint8_t, D> narrow;
    const auto both = hn::PromoteTo(wide, hn::LoadU(narrow, codes));
    const auto index = kPart == 1 ? hn::ShiftRight<4>(both) : hn::And(both, hn::Set(wide, 15));
    if constexpr (kLanes == 16) {
      return hn::TableLookupLanes(lower, hn::IndicesFromVec(d, index));
    } else if constexpr (kLanes == 8) {
      const auto in_half = hn::IndicesFromVec(d, hn::And(index, hn::Set(wide, 7)));
      const auto bit_three = hn::BitCast(d, hn::ShiftLeft<28>(index));  // as the sign
      return hn::IfNegativeThenElse(bit_three, hn::TableLookupLanes(upper, in_half),
                                    hn::TableLookupLanes(lower, in_half));
    } else {
      alignas(64) uint32_t each[kLanes];
      alignas(64) float found[kLanes];
      hn::Store(index, wide, each);
      for (int i = 0; i < kLanes; ++i) found[i] = table[each[i]];
      return hn::Load(d, found);
    }
  }
};
#endif

constexpr int kCodeRows = 4;  // rows of which products are made in registers
#if TEMPER_HAS_FMA
// kRows rows by the codes of kPanels panels from `panel` on: a value is made in a register, scaled
// and multiplied there by all rows. Of matrices of which in_fours() holds.
template <int kBits, int kRows, int kPanels>
HWY_NOINLINE void codes_tile(const QuantizedMatrix& w, int64_t panel, const float* a, int64_t a_row,
                             float* c, int64_t c_row, bool from_c) {
  const D d;
  const CodeValues<kBits> code_values(w.format);
  constexpr int kVectors = CodeValues<kBits>::kPartVectors;
  const int64_t stride = w.width * kIndexBytes<kBits>, groups = w.width / w.group;
  hn::Vec<D> sum[kPanels][kRows][kPanelVectors];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        sum[p][i][v] = from_c ? hn::LoadU(d, c + i * c_row + p * kPanel + v * kLanes) : hn::Zero(d);
  const uint8_t* codes = w.codes + panel * stride;
  for (int64_t g = 0; g < groups; ++g) {
    const float* scales = w.scales.exact + (panel * groups + g) * kPanel;
    for (int64_t k = g * w.group; k < (g + 1) * w.group; k += 4, codes += 4 * kIndexBytes<kBits>) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const float* scale = scales + p * groups * kPanel;
        const auto multiply_add = [&](int first, int j, const hn::Vec<D>* values) HWY_ATTR {
          hn::Vec<D> scaled[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            scaled[v] = hn::Mul(values[v], hn::LoadU(d, scale + (first + v) * kLanes));
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i) {
            const auto left = hn::Set(d, a[i * a_row + k + j]);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v)
              sum[p][i][first + v] = hn::MulAdd(left, scaled[v], sum[p][i][first + v]);
          }
        };
        code_values.template four<0>(d, codes + p * stride,
                                     [&](int j, const hn::Vec<D>* values)
                                         HWY_ATTR { multiply_add(0, j, values); });
        if constexpr (kVectors < kPanelVectors)
          code_values.template four<1>(d, codes + p * stride,
                                       [&](int j, const hn::Vec<D>* values)
                                           HWY_ATTR { multiply_add(kVectors, j, values); });
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        hn::StoreU(sum[p][i][v], d, c + i * c_row + p * kPanel + v * kLanes);
}

// c[rows, columns] = a Wᵀ of columns from panel `panel` on.
template <int kBits, int kRows = kCodeRows>
void code_rows(int rows, const QuantizedMatrix& w, int64_t panel, int64_t columns, const float* a,
               int64_t a_row, float* c, int64_t ldc, bool accumulate) {
  if constexpr (kRows > 1)
    if (rows < kRows)
      return code_rows<kBits, kRows - 1>(rows, w, panel, columns, a, a_row, c, ldc, accumulate);
  constexpr int kAtOnce = kRows == 1 || kBits == 4 ? 2 : 1;
  int64_t j = 0;
  for (; j + kAtOnce * kPanel <= columns; j += kAtOnce * kPanel)
    codes_tile<kBits, kRows, kAtOnce>(w, panel + j / kPanel, a, a_row, c + j, ldc, accumulate);
  for (; j + kPanel <= columns; j += kPanel)
    codes_tile<kBits, kRows, 1>(w, panel + j / kPanel, a, a_row, c + j, ldc, accumulate);
  if (j == columns) return;
  alignas(64) float aside[kRows * kPanel] = {};  // the last panel is padded
  const size_t bytes = static_cast<size_t>(columns - j) * sizeof(float);
  for (int i = 0; i < kRows && accumulate; ++i)
    std::memcpy(aside + i * kPanel, c + i * ldc + j, bytes);
  codes_tile<kBits, kRows, 1>(w, panel + j / kPanel, a, a_row, aside, kPanel, accumulate);
  for (int i = 0; i < kRows; ++i) std::memcpy(c + i * ldc + j, aside + i * kPanel, bytes);
}
#endif

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
