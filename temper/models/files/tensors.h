// Tensors of weight files as LibTorch has them, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "temper/io/tensor_view.h"
#include "temper/nn/module.h"

namespace temper::models {

// In the given dtype. Aliases the view's memory where it has that dtype already, and keeps its
// owner alive.
at::Tensor to_tensor(const TensorView& view, at::ScalarType dtype);
// A contiguous CPU tensor; kept alive by the view.
TensorView to_view(const at::Tensor& tensor);
// One of this shape and dtype that is made when it is written.
TensorView view_of(const std::vector<int64_t>& shape, at::ScalarType dtype,
                   std::function<at::Tensor()> make);
// The runs of bytes of a tensor that is this rank's part of another one.
void put_runs(const at::Tensor& part, const nn::Placement& placement, const TensorView::Put& put);
// A parameter's whole value in the dtype: where ranks share it out, gathered when it is written,
// for which all of them are needed, or each rank's own part.
TensorView whole_view(const nn::Parameter& parameter, at::ScalarType dtype = at::kFloat);

}  // namespace temper::models
