// Attention's settings and forests as its kernels take them.
#pragma once

#include "temper/ops/forest.h"
#include "temper/ops/layers/attention.h"
#include "temper/ops/native/kernels/attention/forest_attention.h"

namespace temper::ops {

inline kernels::AttentionShape attention_shape(const AttentionSpec& s) {
  return {s.num_heads, s.num_kv_heads, s.head_dim,    s.scale,
          s.soft_cap,  s.window,       s.cache_dtype, s.values_in_keys};
}

static_assert(sizeof(kernels::OpenPositions) == sizeof(OpenSpan));
// The forest outlives it.
inline kernels::ForestView forest_view(const AttentionSpec& s, const Forest& f) {
  const bool opens = !s.causal && !f.open.empty();
  return {f.num_tokens(),
          f.num_segments(),
          f.segment_start.data(),
          f.parent.data(),
          f.subtree_end.data(),
          opens ? reinterpret_cast<const kernels::OpenPositions*>(f.open.data()) : nullptr};
}

}  // namespace temper::ops
