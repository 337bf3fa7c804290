// Distances between rows of two tensors. No row's number depends on another row.
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

// a, b [N, D] -> [N]. Differentiable in a; b is a constant.
at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b);   // 1 - cosine of the rows
at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b);  // Σ (a - b)²

// [N, D] -> [N, width], the mean of windows of D - (width - 1) stride features, stride = D div
// width; width is at most D. Not differentiable.
at::Tensor pool_features(const at::Tensor& x, int64_t width);

}  // namespace temper::ops
