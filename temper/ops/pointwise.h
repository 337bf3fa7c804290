// Functions of losses, element by element, and sums over rows, whose bits do not depend on
// LibTorch's vectors or on the C library: on the backend native computed in double
// (temper/base/exact_math.h) and rounded once; on aten LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// Differentiable.
at::Tensor exp(const at::Tensor& x);
at::Tensor expm1(const at::Tensor& x);
at::Tensor log(const at::Tensor& x);
at::Tensor sigmoid(const at::Tensor& x);
at::Tensor log_sigmoid(const at::Tensor& x);

// Not differentiable. Sums in double, by ascending index, rounded once.
at::Tensor sum_of_rows(const at::Tensor& x);  // [rows, columns] -> [columns]
// The same before it is rounded, going on from `before` [columns], what this gave of earlier rows
// (undefined: there were none). On the backend aten of x's own type.
at::Tensor add_rows(const at::Tensor& before, const at::Tensor& x);
at::Tensor sum_in_rows(const at::Tensor& x);  // [..., columns] -> [...]

}  // namespace temper::ops
