// The values of codes (temper/ops/native/kernels/quantized.h), once per SIMD target. No include
// guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_CODE_VALUES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_CODE_VALUES_INL_H
#undef TEMPER_CODE_VALUES_INL_H
#else
#define TEMPER_CODE_VALUES_INL_H
#endif

#include <hwy/highway.h>

#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int kHalfPanel = kPanel / 2;

// How a format's codes become weights.
template <ops::CodeKind kKindOf, int kBitsOf, ops::OffsetKind kOffsetOf>
struct CodeForm {
  static constexpr ops::CodeKind kKind = kKindOf;
  static constexpr int kBits = kBitsOf;
  static constexpr ops::OffsetKind kOffset = kOffsetOf;
  static constexpr int kIndexBytes = kPanel * kBits / 8;  // of one index in a panel
};

#if TEMPER_HAS_FMA
// Codes of which a byte holds those of both halves of a panel's rows: where there are registers for
// it, both at once.
constexpr int kHalfParts = kLanes == 16 ? 1 : 2;

// The values of codes, unscaled. Made once for a loop over codes; constructors are written out, as
// those that the compiler generates are not compiled for the target.
//     at: values of one index of a panel's rows: use(v, value of rows v * kLanes ...); not of
//         kLinear, whose codes are read by fours;
//     four<part>: values of four indices that stand together (in_fours), of one of kParts equal
//     parts of the rows: use(i, values[kPartVectors]).
template <ops::CodeKind kKind, int kBits>
struct CodeValues;

// Of codes of a byte each. Value::of(d, codes): the values of kLanes of them.
template <class Value>
struct ByteValues {
  static constexpr int kParts = 1, kPartVectors = kPanelVectors;
  ByteValues() {}
  template <class Use>
  HWY_INLINE void at(D d, const uint8_t* codes, Use use) const {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) use(v, Value::of(d, codes + v * kLanes));
  }
  template <int kPart, class Use>
  HWY_INLINE void four(D d, const uint8_t* codes, Use use) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      hn::Vec<D> values[kPanelVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v)
        values[v] = Value::of(d, codes + i * kPanel + v * kLanes);
      use(i, values);
    }
  }
};

struct Int8Value {
  static HWY_INLINE hn::Vec<D> of(D d, const uint8_t* codes) {
    const hn::Rebind<int32_t, D> wide;
    const hn::Rebind<int8_t, D> narrow;
    return hn::ConvertTo(
        d, hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const int8_t*>(codes))));
  }
};
// Bytes that are floats: as a float16's bits, whose exponent's bias is 8 more.
struct E4m3Value {
  static HWY_INLINE hn::Vec<D> of(D d, const uint8_t* codes) {
    const hn::Rebind<uint16_t, D> halves;
    const hn::Rebind<uint8_t, D> bytes;
    const hn::Rebind<hwy::float16_t, D> floats;
    const auto x = hn::PromoteTo(halves, hn::LoadU(bytes, codes));
    const auto bits = hn::Or(hn::ShiftLeft<8>(hn::And(x, hn::Set(halves, 0x80))),
                             hn::ShiftLeft<7>(hn::And(x, hn::Set(halves, 0x7f))));
    return hn::Mul(hn::PromoteTo(d, hn::BitCast(floats, bits)), hn::Set(d, 256.0f));
  }
};

template <>
struct CodeValues<ops::CodeKind::kInt8, 8> : ByteValues<Int8Value> {
  explicit CodeValues(WeightFormat) {}
};
template <>
struct CodeValues<ops::CodeKind::kE4m3, 8> : ByteValues<E4m3Value> {
  explicit CodeValues(WeightFormat) {}
};

// Codes of 2, 3, 5 and 6 bits from their planes (unit_bytes()), or'ed to `code`. Bits::template
// add<kFrom, kTo, kMask>(code, bytes): bits kFrom on of each byte, as many as the mask has, to bit
// kTo on.
template <int kBits, int kIndex, int kPart, class Bits, class Code>
HWY_INLINE Code code_of_planes(const uint8_t* unit, Bits, Code code) {
  constexpr int kTwo = kBits >= 4 ? 4 * kHalfPanel : 0,
                kOne = kTwo + (kBits & 2 ? 2 * kHalfPanel : 0);
  if constexpr (kBits >= 4)
    code = Bits::template add<4 * kPart, 0, 15>(code, unit + kIndex * kHalfPanel);
  if constexpr (kBits & 2)
    code = Bits::template add<kIndex % 2 * 4 + 2 * kPart, kBits >= 4 ? 4 : 0, 3>(
        code, unit + kTwo + kIndex / 2 * kHalfPanel);
  if constexpr (kBits & 1)
    code = Bits::template add<2 * kIndex + kPart, kBits - 1, 1>(code, unit + kOne);
  return code;
}

template <int kBits>
struct CodeValues<ops::CodeKind::kLinear, kBits> {
  static constexpr int kParts = kHalfParts, kPartVectors = kPanelVectors / kParts;
  using Wide = hn::Rebind<uint32_t, D>;
  hn::Vec<Wide> whole;  // the bits of 2^23, a number whose last bits are an integer's,
  hn::Vec<D> zero;      // and what that is less the value of code 0
  explicit CodeValues(WeightFormat format)
      : whole(hn::Set(Wide(), 0x4b000000u)),
        zero(hn::Set(D(), 8388608.0f - static_cast<float>(row_of(format).first))) {}

  template <int kPart, class Use>
  HWY_INLINE void four(D d, const uint8_t* codes, Use use) const {
    hn::Vec<D> values[kPartVectors];
    index<kPart, 0>(d, codes, values);
    use(0, values);
    index<kPart, 1>(d, codes, values);
    use(1, values);
    index<kPart, 2>(d, codes, values);
    use(2, values);
    index<kPart, 3>(d, codes, values);
    use(3, values);
  }

 private:
  template <int kPart, int kIndex>
  HWY_INLINE void index(D d, const uint8_t* codes, hn::Vec<D>* values) const {
    constexpr int kVectors = kPanelVectors / 2;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      values[v] = value<kPart, kIndex>(d, codes + v * kLanes);
      if constexpr (kParts == 1) values[v + kVectors] = value<1, kIndex>(d, codes + v * kLanes);
    }
  }
  template <int kPart, int kIndex>
  HWY_INLINE hn::Vec<D> value(D d, const uint8_t* codes) const {
    const auto bits = code_of_planes<kBits, kIndex, kPart>(codes, WideBits(), whole);
    return hn::Sub(hn::BitCast(d, bits), zero);
  }

  struct WideBits {
    template <int kFrom, int kTo, uint32_t kMask>
    static HWY_INLINE hn::Vec<Wide> add(hn::Vec<Wide> code, const uint8_t* from) {
      const Wide wide;
      const hn::Rebind<uint8_t, D> narrow;
      auto x = hn::PromoteTo(wide, hn::LoadU(narrow, from));
      if constexpr (kFrom > kTo) x = hn::ShiftRight<kFrom - kTo>(x);
      if constexpr (kFrom < kTo) x = hn::ShiftLeft<kTo - kFrom>(x);
      return hn::OrAnd(code, x, hn::Set(wide, kMask << kTo));
    }
  };
};

template <>
struct CodeValues<ops::CodeKind::kTable, 4> {
  static constexpr int kParts = kHalfParts, kPartVectors = kPanelVectors / kParts,
                       kHalfVectors = kPanelVectors / 2;
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
    for (int v = 0; v < kHalfVectors; ++v) {
      use(v, value<0>(d, codes + v * kLanes));
      use(v + kHalfVectors, value<1>(d, codes + v * kLanes));
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
      for (int v = 0; v < kHalfVectors; ++v) {
        const uint8_t* from = codes + i * (kSide ? 4 : kHalfPanel) + v * (kSide ? 16 : kLanes);
        values[v] = value<kPart>(d, from);
        if constexpr (kParts == 1) values[v + kHalfVectors] = value<1>(d, from);
      }
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
    const auto index = kPart == 1     ? hn::ShiftRight<4>(both)
                       : kLanes == 16 ? both
                                      : hn::And(both, hn::Set(wide, 15));
#if HWY_TARGET <= HWY_AVX3 && defined(__x86_64__)
    return hn::Vec<D>{_mm512_permutexvar_ps(index.raw, lower.raw)};  // by the lowest four bits
#endif
    if constexpr (kLanes == 8) {
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

// Weights from values of codes. kFused: value times scale is exact, so that a fused operation
// rounds as the two do.
template <ops::OffsetKind kOffset, bool kFused = false>
HWY_INLINE hn::Vec<D> weights(D d, hn::Vec<D> value, hn::Vec<D> scale, const float* offset) {
  if constexpr (kOffset == ops::OffsetKind::kZero)
    return hn::Mul(hn::Sub(value, hn::LoadU(d, offset)), scale);
  if constexpr (kOffset == ops::OffsetKind::kMinimum && kFused)
    return hn::MulSub(value, scale, hn::LoadU(d, offset));
  if constexpr (kOffset == ops::OffsetKind::kMinimum)
    return hn::Sub(hn::Mul(value, scale), hn::LoadU(d, offset));
  return hn::Mul(value, scale);
}
#endif

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
