// Heads' vectors on their way from the projection to attention's scores.
#pragma once

#include "temper/ops/layers/attention.h"

namespace temper::ops::aten_impl {

// A rotary table's row for each row of the batch: cos and sin [N, 1, rotated / 2] and the queries'
// scale [N, 1, 1], undefined where the table's are.
struct RotaryRows {
  at::Tensor cos, sin;
  bool interleaved = false;
  at::Tensor query_scale = {};
};
RotaryRows rotary_rows(const RotaryTable& table, const at::Tensor& position);
// Those of some rows.
RotaryRows range_of(const RotaryRows& rotary, int64_t first, int64_t count);
// Whether rotary_rows() of both is the same.
bool is_same(const RotaryTable& a, const RotaryTable& b);

// q [N, num_heads * head_dim], and k, as scores read them, [N, heads, head_dim]: normalized if
// there is a weight, rotated, queries scaled.
at::Tensor prepare_queries(const AttentionSpec& spec, const RotaryRows& rotary,
                           const at::Tensor& q);
at::Tensor prepare_keys(const AttentionSpec& spec, const RotaryRows& rotary, const at::Tensor& k);

// Their gradients, as q and k; dnorm is added to if defined.
at::Tensor prepare_queries_backward(const AttentionSpec& spec, const RotaryRows& rotary,
                                    const at::Tensor& q, const at::Tensor& dy, at::Tensor& dnorm);
at::Tensor prepare_keys_backward(const AttentionSpec& spec, const RotaryRows& rotary,
                                 const at::Tensor& k, const at::Tensor& dy, at::Tensor& dnorm);

// Each value becomes the nearest one that the cache's type has (kernels::round_to). float64 is left
// as it is.
at::Tensor round_to_cache(const AttentionSpec& spec, const at::Tensor& x);

at::ScalarType scalar_type(CacheDtype dtype);

}  // namespace temper::ops::aten_impl
