// Matrix products of tensors; not differentiable by themselves. Those of a model's weights, of any
// format, are in temper/ops/weight.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// A contiguous 2-D tensor of float32 or float64, read as it lies or transposed.
struct Operand {
  const at::Tensor& tensor;
  bool transposed = false;
  int64_t rows() const { return tensor.size(transposed ? 1 : 0); }
  int64_t columns() const { return tensor.size(transposed ? 0 : 1); }
};

// c (+)= a b (+ bias). c is contiguous and of the operands' dtype. `panels` is pack(b) if the
// caller has it.
void product(Operand a, Operand b, at::Tensor& c, bool accumulate = false,
             const at::Tensor& bias = {}, const at::Tensor& panels = {});

// b packed, for `panels`. Undefined where products read it as it lies.
at::Tensor pack(Operand b);

}  // namespace temper::ops
