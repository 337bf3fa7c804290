// The register tile over several pages of rows, whose sums stay in registers from page to page.
// Included once for each SIMD target.
#if defined(TEMPER_PAGE_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_PAGE_TILES_INL_H
#undef TEMPER_PAGE_TILES_INL_H
#else
#define TEMPER_PAGE_TILES_INL_H
#endif

#include "temper/ops/native/kernels/attention/attention_pages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// c[kRows, kPanel] += a b, one chain of the pages' slots, ascending. Row i of a is at a + i *
// a_row, its pages side by side. b: of each page [kPage][kPanel], `offset` values behind its begin.
template <class B, int kRows>
HWY_NOINLINE void pages_tile(int64_t count, const float* a, int64_t a_row, const B* const* pages,
                             int64_t offset, float* c, int64_t c_row) {
#if TEMPER_HAS_FMA
  const D d;
  hn::Vec<D> sum[kRows][kPanelVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) sum[i][v] = hn::LoadU(d, c + i * c_row + v * kLanes);
  }
  for (int64_t p = 0; p < count; ++p, a += kPage) {
    const B* b = pages[p] + offset;
    for (int64_t k = 0; k < kPage; ++k) {
      hn::Vec<D> right[kPanelVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) right[v] = load_right(d, b + k * kPanel + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const hn::Vec<D> left = hn::Set(d, a[i * a_row + k]);
#pragma GCC unroll 16
        for (int v = 0; v < kPanelVectors; ++v) sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) hn::StoreU(sum[i][v], d, c + i * c_row + v * kLanes);
  }
#else
  for (int64_t p = 0; p < count; ++p)
    tile_row(kRows, kPanel, kPage, a + p * kPage, a_row, 1, pages[p] + offset, 0, c, c_row, true);
#endif
}

// `rows` rows, 1 to kTileRows, and `columns` columns, whole panels; `panel`: values between those
// of a page.
template <class B, int kRows = kTileRows>
void pages_tile_row(int rows, int64_t columns, int64_t count, const float* a, int64_t a_row,
                    const B* const* pages, int64_t offset, int64_t panel, float* c, int64_t c_row) {
  if constexpr (kRows > 1)
    if (rows < kRows)
      return pages_tile_row<B, kRows - 1>(rows, columns, count, a, a_row, pages, offset, panel, c,
                                          c_row);
  for (int64_t j = 0; j < columns; j += kPanel, offset += panel)
    pages_tile<B, kRows>(count, a, a_row, pages, offset, c + j, c_row);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
