// Matrix products of tensors on the kernels of temper/ops/cpu/gemm.h; not differentiable by
// themselves.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// A contiguous 2-D tensor, read as it lies or transposed: float32 or float64. As a right-hand side
// also bfloat16, or float32 that is rounded to it.
struct Operand {
  const at::Tensor& tensor;
  bool transposed = false;
  bool bfloat16 = false;
};

// c (+)= a b (+ bias). c is contiguous, float32 or float64. `panels` is pack(b) if the caller has
// it.
void product(Operand a, Operand b, at::Tensor& c, bool accumulate = false,
             const at::Tensor& bias = {}, const at::Tensor& panels = {});

// b packed: what `panels` takes, in float32 or bfloat16. Undefined for float64, which is never
// packed.
at::Tensor pack(Operand b);

}  // namespace temper::ops
