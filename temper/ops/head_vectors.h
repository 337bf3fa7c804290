// Queries and keys on their way from the projection to attention's scores.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "temper/ops/attention.h"
#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"

namespace temper::ops {

// A head's vectors as attention reads them: normalised if there is a weight, then rotated.
template <class T>
at::Tensor prepare(const AttentionSpec& spec, const RotaryTable& rotary,
                   const std::vector<int64_t>& position, int64_t heads, const at::Tensor& x,
                   const at::Tensor& norm) {
  at::Tensor y = norm.defined() ? at::empty_like(x) : x.clone();
  if (norm.defined())
    kernels::row_kernels<T>().rms_norm(x.size(0) * heads, spec.head_dim, values<T>(x),
                                       values<T>(norm), spec.norm_eps, spec.norm_one_plus,
                                       y.mutable_data_ptr<T>());
  kernels::row_kernels<T>().rotate(x.size(0), heads, spec.head_dim, position.data(),
                                   values<T>(rotary.cos), values<T>(rotary.sin), false,
                                   y.mutable_data_ptr<T>());
  return y;
}

// The gradient of prepare: dy is used up. dnorm is added to if defined.
template <class T>
at::Tensor prepare_backward(const AttentionSpec& spec, const RotaryTable& rotary,
                            const std::vector<int64_t>& position, int64_t heads,
                            const at::Tensor& x, const at::Tensor& norm, at::Tensor dy,
                            at::Tensor& dnorm) {
  kernels::row_kernels<T>().rotate(x.size(0), heads, spec.head_dim, position.data(),
                                   values<T>(rotary.cos), values<T>(rotary.sin), true,
                                   dy.mutable_data_ptr<T>());
  if (!norm.defined()) return dy;
  at::Tensor dx = at::zeros_like(x);
  kernels::row_kernels<T>().rms_norm_backward(
      x.size(0) * heads, spec.head_dim, values<T>(x), values<T>(norm), spec.norm_eps,
      spec.norm_one_plus, values<T>(dy), dx.mutable_data_ptr<T>(),
      dnorm.defined() ? dnorm.mutable_data_ptr<T>() : nullptr);
  return dx;
}

}  // namespace temper::ops
