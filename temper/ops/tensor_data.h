// Tensors' memory, as kernels take it.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/base/error.h"

namespace temper::ops {

// Runs body(float{}) or body(double{}), whichever the tensor holds.
template <class Body>
auto dispatch(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kDouble) return body(double{});
  check(x.scalar_type() == at::kFloat, "expected a float32 or float64 tensor, found ",
        x.scalar_type());
  return body(float{});
}

// Values that do not take part in a gradient, such as another tensor's numbers.
template <class T>
const T* values(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}

}  // namespace temper::ops
