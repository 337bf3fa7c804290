// Queries and keys on their way from the projection to attention's scores, on the processor.
#pragma once

#include <ATen/ATen.h>

#include <type_traits>
#include <vector>

#include "temper/ops/attention.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/tensor_data.h"

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

// Keys and values as attention reads them and as they are cached: rounded to spec.cache_dtype.
template <class T>
at::Tensor prepare_keys(const AttentionSpec& spec, const RotaryTable& rotary,
                        const std::vector<int64_t>& position, const at::Tensor& k,
                        const at::Tensor& norm) {
  at::Tensor y = prepare<T>(spec, rotary, position, spec.num_kv_heads, k, norm);
  if constexpr (std::is_same_v<T, float>)
    kernels::round_to(spec.cache_dtype, y.numel(), y.mutable_data_ptr<float>());
  return y;
}
template <class T>
at::Tensor prepare_values(const AttentionSpec& spec, const at::Tensor& v) {
  if constexpr (std::is_same_v<T, float>)
    if (spec.cache_dtype != CacheDtype::kFloat32) {
      at::Tensor y = v.clone();
      kernels::round_to(spec.cache_dtype, y.numel(), y.mutable_data_ptr<float>());
      return y;
    }
  return v;
}

// The gradient of prepare, and of prepare_keys: dy is used up. dnorm is added to if defined.
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
