// Weights as the kernels of matrix products take them.
#pragma once

#include "temper/base/error.h"
#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/quantized.h"
#include "temper/ops/rounding.h"
#include "temper/ops/tensor_data.h"
#include "temper/ops/weight.h"

namespace temper::ops {

inline const kernels::BFloat16Bits* bfloat16_bits(const at::Tensor& x) {
  return reinterpret_cast<const kernels::BFloat16Bits*>(x.const_data_ptr<at::BFloat16>());
}

inline bool reads_bfloat16(const Weight& w) {
  return w.format == WeightFormat::kBFloat16 || w.format == WeightFormat::kRoundedBFloat16;
}
inline kernels::Rounding rounding_of(const Weight& w) {
  using kernels::Rounding;
  if (!rounds_factors(w)) return Rounding::kNone;
  return w.arithmetic == Arithmetic::kAmx ? Rounding::kBlocks : Rounding::kChain;
}

// [k, n] = Wᵀ as it lies in W.
template <class T>
kernels::MatrixView<T> columns_of(const Weight& w, const T* data) {
  return {data, 1, w.in()};
}
template <class T>
kernels::MatrixView<T> rows_of(const Weight& w, const T* data) {
  return {data, w.in(), 1};
}

inline kernels::GroupNumbers group_numbers(const at::Tensor& numbers, const at::Tensor& nested) {
  kernels::GroupNumbers out{.parts = values<int8_t>(nested)};
  if (!numbers.defined()) return out;
  if (numbers.scalar_type() == at::kHalf)
    out.half = reinterpret_cast<const kernels::Float16Bits*>(numbers.const_data_ptr<at::Half>());
  else
    out.exact = values<float>(numbers);
  return out;
}

inline kernels::QuantizedMatrix matrix_of(const QuantizedWeight& w) {
  check(w.layout == QuantizedWeight::Layout::kPanels,
        "the native backend reads codes that it packed itself");
  return {.format = w.format,
          .rows = w.rows,
          .width = w.width,
          .group = scale_group(w.width, w.block),
          .codes = values<uint8_t>(w.codes),
          .scales = group_numbers(w.scales, w.nested_scales),
          .offsets = group_numbers(w.offsets, w.nested_offsets)};
}

}  // namespace temper::ops
