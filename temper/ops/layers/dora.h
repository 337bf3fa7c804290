// Weight-decomposed low-rank adaptation (DoRA, Liu et al., arXiv 2402.09353, equation 5): a weight
// as a direction, W + scale B A with its rows divided by their norms, times a magnitude a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace temper::ops {

// `count` rows of a weight [out, in] from row `first` on, [count, in], float32 or float64.
using RowsOf = std::function<at::Tensor(int64_t first, int64_t count)>;

// ||W + scale B A|| of each row, [out]; a [rank, in], b [out, rank]. Squares are added in double,
// in an order that depends on `in` alone. Not differentiable.
at::Tensor adapted_row_norms(const RowsOf& weight, const at::Tensor& a, const at::Tensor& b,
                             double scale);

// magnitude / norm, [out]; 0 where the norm is 0.
at::Tensor feature_scale(const at::Tensor& magnitude, const at::Tensor& norm);

// y[n, j] = x[n, j] * (magnitude[j] / norm[j]) + bias[j]; bias may be undefined. Differentiable in
// x, magnitude and bias; the norm is a constant (section 4.3).
at::Tensor scale_features(const at::Tensor& x, const at::Tensor& magnitude, const at::Tensor& norm,
                          const at::Tensor& bias);

}  // namespace temper::ops
