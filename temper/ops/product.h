// Matrix products of tensors on the kernels of temper/ops/cpu/gemm.h; not differentiable by themselves.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// A contiguous 2-D tensor read as it lies or transposed; as a right-hand side, of float32, also rounded to bfloat16.
struct Operand {
  const at::Tensor& tensor;
  bool transposed = false;
  bool bfloat16 = false;
};

// c (+)= a b (+ bias). c is contiguous, float32 or float64. `panels` is pack(b) if the caller has it.
void product(Operand a, Operand b, at::Tensor& c, bool accumulate = false, const at::Tensor& bias = {},
             const at::Tensor& panels = {});

// b packed: what `panels` takes. Undefined for float64, which is never packed.
at::Tensor pack(Operand b);

}  // namespace temper::ops
