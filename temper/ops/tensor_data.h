// Tensors' memory, as kernels take it.
#pragma once

#include <ATen/EmptyTensor.h>
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

// A contiguous tensor without values, of the dtype and on the device of another. On the host not
// through LibTorch's dispatcher, which takes as long as a small kernel.
inline at::Tensor new_tensor(at::IntArrayRef sizes, const at::Tensor& like) {
  if (!like.is_cpu()) return like.new_empty(sizes);
  return at::detail::empty_cpu(sizes, like.scalar_type());
}

}  // namespace temper::ops
