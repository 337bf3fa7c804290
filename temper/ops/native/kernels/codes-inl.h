// Products of few rows with codes (temper/ops/native/kernels/quantized.h), once per SIMD target. No
// include guard in the usual form: foreach_target.h includes it once for each target.
#if defined(TEMPER_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_CODES_INL_H
#undef TEMPER_CODES_INL_H
#else
#define TEMPER_CODES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "temper/ops/native/kernels/code_values-inl.h"
#include "temper/ops/native/kernels/panel_numbers-inl.h"
#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int kCodeRows = 4;  // rows of which products are made in registers
// How far ahead codes are fetched, in fours of indices: processors do so by themselves, but not
// past the end of a page.
constexpr int kAhead = 32;
#if TEMPER_HAS_FMA
// kRows rows by the codes of kPanels panels from `panel` on: a value is made in a register, scaled
// and multiplied there by all rows. Of matrices of which in_fours() and has_exact_values() hold.
template <class Form, int kRows, int kPanels>
HWY_NOINLINE void codes_tile(const QuantizedMatrix& w, int64_t panel, const float* a, int64_t a_row,
                             float* c, int64_t c_row, bool from_c) {
  using Values = CodeValues<Form::kKind, Form::kBits>;
  const D d;
  const Values code_values(w.format);
  constexpr int kVectors = Values::kPartVectors;
  constexpr bool kHasOffsets = Form::kOffset != ops::OffsetKind::kNone;
  constexpr int kFour = 4 * Form::kIndexBytes;
  const int64_t stride = w.width * Form::kIndexBytes, groups = w.width / w.group;
  hn::Vec<D> sum[kPanels][kRows][kPanelVectors];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v)
        sum[p][i][v] = from_c ? hn::LoadU(d, c + i * c_row + p * kPanel + v * kLanes) : hn::Zero(d);
  const uint8_t* codes = w.codes + panel * stride;
  PanelNumbers<kPanels> scales(w, w.scales, panel), offsets(w, w.offsets, panel);
  for (int64_t g = 0; g < groups; ++g) {
    scales.read(g);
    if (kHasOffsets) offsets.read(g);
    for (int64_t k = g * w.group; k < (g + 1) * w.group; k += 4, codes += kFour) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 4
        for (int byte = 0; byte < kFour; byte += 64)
          __builtin_prefetch(codes + p * stride + kAhead * kFour + byte);
        const float *scale = scales.of(p), *offset = offsets.of(p);
        const auto multiply_add = [&](int first, int j, const hn::Vec<D>* values) HWY_ATTR {
          hn::Vec<D> scaled[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            scaled[v] = weights<Form::kOffset, true>(
                d, values[v], hn::LoadU(d, scale + (first + v) * kLanes),
                offset + (kHasOffsets ? (first + v) * kLanes : 0));
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
template <class Form, int kRows>
void code_rows(int rows, const QuantizedMatrix& w, int64_t panel, int64_t columns, const float* a,
               int64_t a_row, float* c, int64_t ldc, bool accumulate) {
  if constexpr (kRows > 1)
    if (rows < kRows)
      return code_rows<Form, kRows - 1>(rows, w, panel, columns, a, a_row, c, ldc, accumulate);
  constexpr int kAtOnce = kLanes == 16 || kRows == 1 || Form::kBits == 4 ? 2 : 1;
  int64_t j = 0;
  for (; j + kAtOnce * kPanel <= columns; j += kAtOnce * kPanel)
    codes_tile<Form, kRows, kAtOnce>(w, panel + j / kPanel, a, a_row, c + j, ldc, accumulate);
  for (; j + kPanel <= columns; j += kPanel)
    codes_tile<Form, kRows, 1>(w, panel + j / kPanel, a, a_row, c + j, ldc, accumulate);
  if (j == columns) return;
  alignas(64) float aside[kRows * kPanel] = {};  // the last panel is padded
  const size_t bytes = static_cast<size_t>(columns - j) * sizeof(float);
  for (int i = 0; i < kRows && accumulate; ++i)
    std::memcpy(aside + i * kPanel, c + i * ldc + j, bytes);
  codes_tile<Form, kRows, 1>(w, panel + j / kPanel, a, a_row, aside, kPanel, accumulate);
  for (int i = 0; i < kRows; ++i) std::memcpy(c + i * ldc + j, aside + i * kPanel, bytes);
}
#endif

// to[i * kPanel + r] = W[panel * kPanel + r, i0 + i] for i < depth. i0 is a multiple of four, and
// so is the depth unless it ends with the width.
template <class Form>
HWY_NOINLINE void unpack_panel(const QuantizedMatrix& w, int64_t panel, int64_t i0, int64_t depth,
                               float* to) {
#if TEMPER_HAS_FMA
  using Values = CodeValues<Form::kKind, Form::kBits>;
  constexpr int kBytes = Form::kIndexBytes, kPart = Values::kPartVectors;
  constexpr bool kHasOffsets = Form::kOffset != ops::OffsetKind::kNone;
  const uint8_t* codes = w.codes + (panel * w.width + i0) * kBytes;
  const D d;
  const Values values(w.format);
  PanelNumbers<1> all_scales(w, w.scales, panel), all_offsets(w, w.offsets, panel);
  for (int64_t i = 0; i < depth;) {
    const int64_t group = (i0 + i) / w.group, end = std::min(depth, (group + 1) * w.group - i0);
    all_scales.read(group);
    if (kHasOffsets) all_offsets.read(group);
    const float *scales = all_scales.of(0), *offsets = all_offsets.of(0);
    hn::Vec<D> scale[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) scale[v] = hn::LoadU(d, scales + v * kLanes);
    const auto store = [&](int64_t at, int v, hn::Vec<D> x) HWY_ATTR {
      const float* offset = offsets + (kHasOffsets ? v * kLanes : 0);
      hn::StoreU(weights<Form::kOffset>(d, x, scale[v], offset), d, to + at * kPanel + v * kLanes);
    };
    for (; in_fours(w.group) && i < end; i += 4, codes += 4 * kBytes) {
      values.template four<0>(d, codes, [&](int j, const hn::Vec<D>* x) HWY_ATTR {
        for (int v = 0; v < kPart; ++v) store(i + j, v, x[v]);
      });
      if constexpr (kPart < kPanelVectors)
        values.template four<1>(d, codes, [&](int j, const hn::Vec<D>* x) HWY_ATTR {
          for (int v = 0; v < kPart; ++v) store(i + j, v + kPart, x[v]);
        });
    }
    if constexpr (Form::kKind != ops::CodeKind::kLinear)
      for (; i < end; ++i, codes += kBytes)
        values.at(d, codes, [&](int v, hn::Vec<D> value) HWY_ATTR { store(i, v, value); });
  }
#else
  for (int64_t i = 0; i < depth; ++i)
    for (int64_t r = 0; r < kPanel; ++r)
      to[i * kPanel + r] = value_at(w, panel * kPanel + r, i0 + i);
#endif
}

// The kernels of a form of codes.
struct CodeKernels {
  void (*unpack)(const QuantizedMatrix& w, int64_t panel, int64_t i0, int64_t depth, float* to);
  void (*rows)(int rows, const QuantizedMatrix& w, int64_t panel, int64_t columns, const float* a,
               int64_t a_row, float* c, int64_t ldc, bool accumulate);
  int most_rows;  // that `rows` takes; 0: there is no such kernel
};
template <ops::CodeKind kKind, int kBits, ops::OffsetKind kOffset = ops::OffsetKind::kNone>
CodeKernels kernels_of_form() {
  using Form = CodeForm<kKind, kBits, kOffset>;
#if TEMPER_HAS_FMA
  return {&unpack_panel<Form>, &code_rows<Form, kCodeRows>, kCodeRows};
#else
  return {&unpack_panel<Form>, nullptr, 0};
#endif
}

inline CodeKernels kernels_of_table(ops::OffsetKind offset) {
  using enum ops::CodeKind;
  using enum ops::OffsetKind;
  if (offset == kZero) return kernels_of_form<kTable, 4, kZero>();
  if (offset == kMinimum) return kernels_of_form<kTable, 4, kMinimum>();
  return kernels_of_form<kTable, 4, kNone>();
}
inline CodeKernels kernels_of_linear(int bits, ops::OffsetKind offset) {
  using enum ops::CodeKind;
  using enum ops::OffsetKind;
  if (bits == 2)
    return offset == kMinimum ? kernels_of_form<kLinear, 2, kMinimum>()
                              : kernels_of_form<kLinear, 2>();
  if (bits == 3) return kernels_of_form<kLinear, 3>();
  if (bits == 6) return kernels_of_form<kLinear, 6>();
  return offset == kMinimum ? kernels_of_form<kLinear, 5, kMinimum>()
                            : kernels_of_form<kLinear, 5>();
}
// Whether values times scales are exact where minimums are subtracted from them: integers of at
// most 6 bits, float16 scales of 11 and integers of groups of 7.
inline bool has_exact_values(const QuantizedMatrix& w) {
  const bool minimums = row_of(w.format).offset == ops::OffsetKind::kMinimum;
  return !minimums || w.scales.half;
}
inline CodeKernels kernels_of(const QuantizedMatrix& w) {
  using enum ops::CodeKind;
  using enum ops::OffsetKind;
  const ops::FormatRow& row = row_of(w.format);
  const ops::OffsetKind offset = w.offsets.exact || w.offsets.half ? row.offset : kNone;
  switch (row.kind) {
    case kTable:
      return kernels_of_table(offset);
    case kLinear:
      return kernels_of_linear(row.bits, offset);
    case kE4m3:
      return kernels_of_form<kE4m3, 8>();
    case kInt8:
      break;
  }
  return offset == kZero ? kernels_of_form<kInt8, 8, kZero>() : kernels_of_form<kInt8, 8, kNone>();
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
