#include "temper/ops/aten/heads.h"

#include <ATen/ATen.h>

#include "temper/ops/aten/aten.h"

namespace temper::ops::aten_impl {
namespace {

// Rotates pairs of each head's first features: (a, b) -> (a cos - b sin, b cos + a sin), or back.
at::Tensor rotate(const at::Tensor& x, const RotaryRows& rotary, bool inverse = false) {
  if (!rotary.cos.defined()) return x;
  const at::Tensor &cos = rotary.cos, sin = inverse ? -rotary.sin : rotary.sin;
  const int64_t half = cos.size(2), rotated = 2 * half;
  const auto part = [&](int64_t which) {
    return rotary.interleaved ? x.slice(2, which, rotated, 2) : x.narrow(2, which * half, half);
  };
  const at::Tensor a = part(0), b = part(1), to_a = (a * cos).addcmul_(b, sin, -1),
                   to_b = (b * cos).addcmul_(a, sin);
  std::vector<at::Tensor> parts{to_a, to_b};
  if (rotary.interleaved) parts = {at::stack(parts, 3).flatten(2)};
  if (rotated < x.size(2)) parts.push_back(x.narrow(2, rotated, x.size(2) - rotated));
  return parts.size() == 1 ? parts[0] : at::cat(parts, 2);
}

at::Tensor norm_heads(const AttentionSpec& s, const at::Tensor& x, const at::Tensor& norm) {
  return norm.defined() ? aten_backend().rms_norm(x, norm, s.norm_eps, s.norm_one_plus) : x;
}

at::Tensor prepare(const AttentionSpec& s, const RotaryRows& rotary, int64_t heads,
                   const at::Tensor& x, const at::Tensor& norm) {
  const at::Tensor y = x.view({x.size(0), heads, s.head_dim});
  if (s.norm_rotated) return norm_heads(s, rotate(y, rotary), norm);
  return rotate(norm_heads(s, y, norm), rotary);
}

at::Tensor prepare_backward(const AttentionSpec& s, const RotaryRows& rotary, int64_t heads,
                            const at::Tensor& x, const at::Tensor& norm, const at::Tensor& dy,
                            at::Tensor& dnorm) {
  const auto back_through_norm = [&](const at::Tensor& read, const at::Tensor& d) {
    return norm.defined() ? aten_backend().rms_norm_backward(read, norm, s.norm_eps,
                                                             s.norm_one_plus, d.contiguous(), dnorm)
                          : d;
  };
  const at::Tensor y = x.view({x.size(0), heads, s.head_dim});
  if (s.norm_rotated)
    return rotate(back_through_norm(rotate(y, rotary), dy), rotary, true).reshape(x.sizes());
  return back_through_norm(y, rotate(dy, rotary, true)).reshape(x.sizes());
}

}  // namespace

RotaryRows rotary_rows(const RotaryTable& table, const at::Tensor& position) {
  const auto rows = [&](const at::Tensor& x) {
    const at::Tensor all = x.to(position.device());
    return (table.by_token ? all : all.index_select(0, position)).unsqueeze(1);
  };
  RotaryRows at{{}, {}, table.interleaved};
  if (table.cos.defined()) {
    at.cos = rows(table.cos);
    at.sin = rows(table.sin);
  }
  if (table.query_scale.defined()) at.query_scale = rows(table.query_scale).unsqueeze(2);
  return at;
}

RotaryRows range_of(const RotaryRows& rotary, int64_t first, int64_t count) {
  const auto part = [&](const at::Tensor& x) {
    return x.defined() ? x.narrow(0, first, count) : x;
  };
  return {part(rotary.cos), part(rotary.sin), rotary.interleaved, part(rotary.query_scale)};
}

bool is_same(const RotaryTable& a, const RotaryTable& b) {
  return a.cos.is_same(b.cos) && a.sin.is_same(b.sin) && a.interleaved == b.interleaved &&
         a.by_token == b.by_token && a.query_scale.is_same(b.query_scale);
}

at::Tensor prepare_queries(const AttentionSpec& s, const RotaryRows& rotary, const at::Tensor& q) {
  const at::Tensor y = prepare(s, rotary, s.num_heads, q, s.q_norm);
  return rotary.query_scale.defined() ? y * rotary.query_scale : y;
}
at::Tensor prepare_keys(const AttentionSpec& s, const RotaryRows& rotary, const at::Tensor& k) {
  return prepare(s, rotary, s.num_kv_heads, k, s.k_norm);
}

at::Tensor prepare_queries_backward(const AttentionSpec& s, const RotaryRows& rotary,
                                    const at::Tensor& q, const at::Tensor& dy, at::Tensor& dnorm) {
  const at::Tensor d = rotary.query_scale.defined() ? dy * rotary.query_scale : dy;
  return prepare_backward(s, rotary, s.num_heads, q, s.q_norm, d, dnorm);
}
at::Tensor prepare_keys_backward(const AttentionSpec& s, const RotaryRows& rotary,
                                 const at::Tensor& k, const at::Tensor& dy, at::Tensor& dnorm) {
  return prepare_backward(s, rotary, s.num_kv_heads, k, s.k_norm, dy, dnorm);
}

at::ScalarType scalar_type(CacheDtype dtype) {
  if (dtype == CacheDtype::kFloat16) return at::kHalf;
  return dtype == CacheDtype::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

at::Tensor round_to_cache(const AttentionSpec& spec, const at::Tensor& x) {
  if (x.scalar_type() != at::kFloat || spec.cache_dtype == CacheDtype::kFloat32) return x;
  const at::Tensor y = x.to(scalar_type(spec.cache_dtype)).to(at::kFloat);
  if (spec.cache_dtype == CacheDtype::kBFloat16) return y;
  // Finite values beyond float16's largest become that; infinities stay.
  return at::where(x.isinf(), x, y.clamp(-65504, 65504));
}

}  // namespace temper::ops::aten_impl
