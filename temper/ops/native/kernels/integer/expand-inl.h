// Panels of quantized matrices in the form that products in integers read: one number a group in
// float32, and codes of 2, 3, 5 and 6 bits as the bytes of their integers. Once per SIMD target; no
// include guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_EXPAND_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_EXPAND_INL_H
#undef TEMPER_EXPAND_INL_H
#else
#define TEMPER_EXPAND_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "temper/ops/native/kernels/code_values-inl.h"
#include "temper/ops/native/kernels/panel_numbers-inl.h"
#include "temper/ops/native/kernels/quantized.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// A thread's memory for one panel; what is returned points into it or into the matrix.
struct ExpandedPanel {
  std::vector<float> scales, offsets;
  std::vector<uint8_t> codes;

  // [groups][kPanel]; null: the matrix has no such numbers.
  const float* numbers_of(const QuantizedMatrix& w, const GroupNumbers& numbers, int64_t panel,
                          std::vector<float>& memory) {
    const int64_t groups = w.width / w.group;
    if (!numbers.exact && !numbers.half) return nullptr;
    if (numbers.exact && !numbers.parts) return numbers.exact + panel * groups * kPanel;
    memory.resize(static_cast<size_t>(groups * kPanel));
#if TEMPER_HAS_FMA
    PanelNumbers<1> of(w, numbers, panel);
    for (int64_t g = 0; g < groups; ++g) of.write(g, memory.data() + g * kPanel);
#else
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t r = 0; r < kPanel; ++r)
        memory[static_cast<size_t>(g * kPanel + r)] =
            number_at(numbers, w, panel * kPanel + r, g * w.group);
#endif
    return memory.data();
  }

  // Codes in planes as [width][kPanel] bytes, for instructions that do not read planes.
  const uint8_t* codes_of(const QuantizedMatrix& w, int64_t panel) {
    const ops::FormatRow& format = row_of(w.format);
    codes.resize(static_cast<size_t>(w.width * kPanel));
    switch (format.bits) {
      case 2:
        return expand<2>(w, panel);
      case 3:
        return expand<3>(w, panel);
      case 5:
        return expand<5>(w, panel);
      default:
        return expand<6>(w, panel);
    }
  }

 private:
#if TEMPER_HAS_FMA
  using Bytes = hn::FixedTag<uint8_t, kHalfPanel>;

  struct ByteBits {
    template <int kFrom, int kTo, uint8_t kMask>
    static HWY_INLINE hn::Vec<Bytes> add(hn::Vec<Bytes> code, const uint8_t* from) {
      const Bytes bytes;
      const auto x = hn::ShiftRight<kFrom>(hn::LoadU(bytes, from));
      return hn::Or(code, hn::ShiftLeft<kTo>(hn::And(x, hn::Set(bytes, kMask))));
    }
  };

  // The integers of one index of a unit's four, whose least is `first`.
  template <int kBits, int kIndex>
  static HWY_INLINE void expand_index(const uint8_t* unit, hn::Vec<Bytes> first, uint8_t* to) {
    const Bytes bytes;
    const auto low = code_of_planes<kBits, kIndex, 0>(unit, ByteBits(), hn::Zero(bytes)),
               high = code_of_planes<kBits, kIndex, 1>(unit, ByteBits(), hn::Zero(bytes));
    hn::StoreU(hn::Add(low, first), bytes, to + kIndex * kPanel);
    hn::StoreU(hn::Add(high, first), bytes, to + kIndex * kPanel + kHalfPanel);
  }
#endif

  template <int kBits>
  const uint8_t* expand(const QuantizedMatrix& w, int64_t panel) {
#if TEMPER_HAS_FMA
    const auto first =
        hn::Set(Bytes(), static_cast<uint8_t>(static_cast<int>(row_of(w.format).first)));
    const uint8_t* from = w.codes + panel * (w.width * kPanel * kBits / 8);
    uint8_t* to = codes.data();
    for (int64_t i = 0; i < w.width;
         i += 4, from += unit_bytes(kHalfPanel, kBits), to += 4 * kPanel) {
      expand_index<kBits, 0>(from, first, to);
      expand_index<kBits, 1>(from, first, to);
      expand_index<kBits, 2>(from, first, to);
      expand_index<kBits, 3>(from, first, to);
    }
#else
    for (int64_t i = 0; i < w.width; ++i)
      for (int64_t r = 0; r < kPanel; ++r)
        codes[static_cast<size_t>(i * kPanel + r)] =
            static_cast<uint8_t>(static_cast<int8_t>(code_value_at(w, panel * kPanel + r, i)));
#endif
    return codes.data();
  }
};

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
