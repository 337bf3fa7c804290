// Tensors of weight files as LibTorch has them, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/io/tensor_view.h"

namespace temper::models {

// In the given dtype. Aliases the view's memory where it has that dtype already, and keeps its
// owner alive.
at::Tensor to_tensor(const TensorView& view, at::ScalarType dtype);
// A contiguous CPU tensor; kept alive by the view.
TensorView to_view(const at::Tensor& tensor);

}  // namespace temper::models
