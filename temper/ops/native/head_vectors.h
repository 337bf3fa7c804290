// Queries and keys on their way from the projection to attention's scores, on the processor.
#pragma once

#include <ATen/ATen.h>

#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "temper/ops/layers/attention.h"
#include "temper/ops/native/kernels/attention/cache_dtype.h"
#include "temper/ops/native/kernels/rows.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {

// The row of a rotary table for each of a forest's tokens.
class TableRows {
 public:
  // `position` outlives it.
  TableRows(const RotaryTable& rotary, const std::vector<int64_t>& position) : rows_(position) {
    if (!rotary.by_token) return;
    tokens_.resize(position.size());
    std::iota(tokens_.begin(), tokens_.end(), 0);
    rows_ = tokens_;
  }
  TableRows(const TableRows&) = delete;
  TableRows& operator=(const TableRows&) = delete;

  std::span<const int64_t> all() const { return rows_; }
  // Of the tokens from `first` on that x has rows of.
  std::span<const int64_t> of(int64_t first, const at::Tensor& x) const {
    return rows_.subspan(static_cast<size_t>(first), static_cast<size_t>(x.size(0)));
  }

 private:
  std::vector<int64_t> tokens_;
  std::span<const int64_t> rows_;
};

// Rotates heads' vectors, or with `inverse` their gradients back, in place.
template <class T>
void rotate(const AttentionSpec& spec, const RotaryTable& rotary, std::span<const int64_t> position,
            int64_t heads, bool inverse, at::Tensor& x) {
  if (!rotary.cos.defined()) return;
  kernels::row_kernels<T>().rotate(x.size(0), heads, spec.head_dim,
                                   {2 * rotary.cos.size(1), rotary.interleaved}, position.data(),
                                   values<T>(rotary.cos), values<T>(rotary.sin), inverse,
                                   x.mutable_data_ptr<T>());
}

// A head's vectors as attention reads them: normalized if there is a weight, and rotated.
template <class T>
at::Tensor prepare(const AttentionSpec& spec, const RotaryTable& rotary,
                   std::span<const int64_t> position, int64_t heads, const at::Tensor& x,
                   const at::Tensor& norm) {
  const bool norm_first = norm.defined() && !spec.norm_rotated;
  at::Tensor y = norm_first ? x : x.clone();
  if (!norm_first) rotate<T>(spec, rotary, position, heads, false, y);
  if (!norm.defined()) return y;
  at::Tensor normed = new_tensor(x.sizes(), x);
  kernels::row_kernels<T>().rms_norm(x.size(0) * heads, spec.head_dim, values<T>(y),
                                     values<T>(norm), spec.norm_eps, spec.norm_one_plus,
                                     normed.mutable_data_ptr<T>());
  if (norm_first) rotate<T>(spec, rotary, position, heads, false, normed);
  return normed;
}

// Multiplies each row of x by the scale of its position, in place.
template <class T>
void scale_queries(const RotaryTable& rotary, std::span<const int64_t> position, at::Tensor& x) {
  if (!rotary.query_scale.defined()) return;
  const T* scale = values<T>(rotary.query_scale);
  const int64_t width = x.size(1);
  T* row = x.mutable_data_ptr<T>();
  for (const int64_t p : position) {
    for (int64_t i = 0; i < width; ++i) row[i] *= scale[p];
    row += width;
  }
}

template <class T>
at::Tensor prepare_queries(const AttentionSpec& spec, const RotaryTable& rotary,
                           std::span<const int64_t> position, const at::Tensor& q) {
  at::Tensor y = prepare<T>(spec, rotary, position, spec.num_heads, q, spec.q_norm);
  scale_queries<T>(rotary, position, y);
  return y;
}

// Keys and values as attention reads them and as they are cached: rounded to spec.cache_dtype.
template <class T>
at::Tensor prepare_keys(const AttentionSpec& spec, const RotaryTable& rotary,
                        std::span<const int64_t> position, const at::Tensor& k) {
  at::Tensor y = prepare<T>(spec, rotary, position, spec.num_kv_heads, k, spec.k_norm);
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
                            std::span<const int64_t> position, int64_t heads, const at::Tensor& x,
                            const at::Tensor& norm, at::Tensor dy, at::Tensor& dnorm) {
  const bool norm_last = norm.defined() && spec.norm_rotated;
  if (!norm_last) rotate<T>(spec, rotary, position, heads, true, dy);
  if (!norm.defined()) return dy;
  at::Tensor read = norm_last ? x.clone() : x;  // the norm's input
  if (norm_last) rotate<T>(spec, rotary, position, heads, false, read);
  at::Tensor dx = at::zeros_like(x);
  kernels::row_kernels<T>().rms_norm_backward(
      x.size(0) * heads, spec.head_dim, values<T>(read), values<T>(norm), spec.norm_eps,
      spec.norm_one_plus, values<T>(dy), dx.mutable_data_ptr<T>(),
      dnorm.defined() ? dnorm.mutable_data_ptr<T>() : nullptr);
  if (norm_last) rotate<T>(spec, rotary, position, heads, true, dx);
  return dx;
}

// The gradient of prepare_queries: dy is used up.
template <class T>
at::Tensor prepare_queries_backward(const AttentionSpec& spec, const RotaryTable& rotary,
                                    std::span<const int64_t> position, const at::Tensor& q,
                                    at::Tensor dy, at::Tensor& dnorm) {
  scale_queries<T>(rotary, position, dy);
  return prepare_backward<T>(spec, rotary, position, spec.num_heads, q, spec.q_norm, dy, dnorm);
}

}  // namespace temper::ops
