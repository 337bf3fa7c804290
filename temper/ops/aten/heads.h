// Heads' vectors on their way from the projection to attention's scores.
#pragma once

#include "temper/ops/attention.h"

namespace temper::ops::aten_impl {

// cos and sin of each row's position, [N, 1, head_dim / 2].
struct RotaryRows {
  at::Tensor cos, sin;
};
RotaryRows rotary_rows(const RotaryTable& table, const at::Tensor& position);

// x [N, heads * head_dim] as scores read it, [N, heads, head_dim]: normalised if there is a weight,
// then rotated.
at::Tensor prepare_heads(const AttentionSpec& spec, const RotaryRows& rotary, int64_t heads,
                         const at::Tensor& x, const at::Tensor& norm);

// The gradient of prepare_heads, as x; dnorm is added to if defined.
at::Tensor prepare_heads_backward(const AttentionSpec& spec, const RotaryRows& rotary,
                                  int64_t heads, const at::Tensor& x, const at::Tensor& norm,
                                  const at::Tensor& dy, at::Tensor& dnorm);

// Each value becomes the nearest one that the cache's type has (kernels::round_to). float64 is left
// as it is.
at::Tensor round_to_cache(const AttentionSpec& spec, const at::Tensor& x);

at::ScalarType scalar_type(CacheDtype dtype);

}  // namespace temper::ops::aten_impl
