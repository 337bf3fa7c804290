// The numbers of groups of quantized matrices (temper/ops/native/kernels/quantized.h), once per
// SIMD target. No include guard in the usual form: foreach_target.h includes it once for each
// target.
#if defined(TEMPER_PANEL_NUMBERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_PANEL_NUMBERS_INL_H
#undef TEMPER_PANEL_NUMBERS_INL_H
#else
#define TEMPER_PANEL_NUMBERS_INL_H
#endif

#include <hwy/highway.h>

#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

#if TEMPER_HAS_FMA
// The numbers of a group in kPanels panels from `panel` on.
template <int kPanels>
class PanelNumbers {
 public:
  PanelNumbers(const QuantizedMatrix& w, const GroupNumbers& numbers, int64_t panel)
      : numbers_(numbers), parts_of_panel_(w.width / w.group * kPanel) {
    const int64_t super = row_of(w.format).super_block;
    of_panel_ = numbers.parts ? w.width / super * kPanel : parts_of_panel_;
    if (numbers.parts) per_ = static_cast<uint32_t>(super / w.group);
    first_ = panel * of_panel_;
    first_part_ = panel * parts_of_panel_;
  }

  // Goes to a group; its numbers stay until the next call.
  HWY_INLINE void read(int64_t group) {
    if (numbers_.exact && !numbers_.parts) {
      at_ = numbers_.exact + first_ + group * kPanel;
      apart_ = of_panel_;
    } else if (numbers_.exact || numbers_.half) {
      make(group);
    }
  }
  // Writes a group's to [kPanels][kPanel].
  HWY_INLINE void write(int64_t group, float* to) const {
    const D d;
    const hn::Rebind<int32_t, D> wide;
    const hn::Rebind<int8_t, D> narrow;
    const int64_t at = first_ + static_cast<uint32_t>(group) / per_ * kPanel,
                  part = first_part_ + group * kPanel;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        const int64_t from = at + p * of_panel_ + v * kLanes;
        auto x = numbers_.exact ? hn::LoadU(d, numbers_.exact + from)
                                : load_right(d, numbers_.half + from);
        if (numbers_.parts) {
          const int8_t* parts = numbers_.parts + part + p * parts_of_panel_ + v * kLanes;
          if (v == 0) __builtin_prefetch(parts + kGroupsAhead * kPanel);
          const auto of_group = hn::LoadU(narrow, parts);
          x = hn::Mul(x, hn::ConvertTo(d, hn::PromoteTo(wide, of_group)));
        }
        hn::StoreU(x, d, to + p * kPanel + v * kLanes);
      }
  }
  // Of one of the panels.
  HWY_INLINE const float* of(int panel) const { return at_ + panel * apart_; }

 private:
  HWY_NOINLINE void make(int64_t group) {
    write(group, made_);
    at_ = made_;
    apart_ = kPanel;
  }

  static constexpr int kGroupsAhead = 8;  // fetched before they are asked for

  const GroupNumbers& numbers_;
  int64_t of_panel_, parts_of_panel_, first_, first_part_;
  uint32_t per_ = 1;  // groups of a super-block
  const float* at_ = nullptr;
  int64_t apart_ = 0;
  alignas(64) float made_[kPanels * kPanel];
};
#endif

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
