// Matrix products of tensors on the kernels of temper/ops/cpu/gemm.h; not differentiable by
// themselves. Those of a model's weights, of any format, are in temper/ops/weight.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// A contiguous 2-D tensor of float32 or float64, read as it lies or transposed.
struct Operand {
  const at::Tensor& tensor;
  bool transposed = false;
};

// c (+)= a b (+ bias). c is contiguous and of the operands' dtype. `panels` is pack(b) if the
// caller has it.
void product(Operand a, Operand b, at::Tensor& c, bool accumulate = false,
             const at::Tensor& bias = {}, const at::Tensor& panels = {});

// b packed: what `panels` takes. Undefined for float64, which is never packed.
at::Tensor pack(Operand b);

}  // namespace temper::ops
