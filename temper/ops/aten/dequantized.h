// The values of quantized weights, as the aten backend lays them out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "temper/ops/weight.h"

namespace temper::ops::aten_impl {

// Rows [first, first + count) of a matrix, float32, with columns in the order of the codes.
at::Tensor dequantized(const QuantizedWeight& w, int64_t first, int64_t count);
// Their codes, one a byte [count, width].
at::Tensor codes_of_rows(const QuantizedWeight& w, int64_t first, int64_t count);
// Their scales, or with `offsets` what values are counted from, over `group` values of a row at a
// time: float32 [width / group, count].
at::Tensor numbers_of_rows(const QuantizedWeight& w, bool offsets, int64_t group, int64_t first,
                           int64_t count);
// Rows by index [n].
at::Tensor dequantized_rows(const QuantizedWeight& w, const at::Tensor& rows);

}  // namespace temper::ops::aten_impl
