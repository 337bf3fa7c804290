// Products in integers (Arithmetic::kInteger), to the bits of the native backend's: each step of
// the definition in native/kernels/integer/integer_gemm.h is an operator of LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "temper/ops/weight.h"

namespace temper::ops::aten_impl {

// y = x Wᵀ, of at most `rows` of W at once.
void multiply_integers(const at::Tensor& x, const QuantizedWeight& w, int64_t rows, at::Tensor& y);

}  // namespace temper::ops::aten_impl
