#include "temper/ops/aten/heads.h"

#include <ATen/ATen.h>

#include "temper/ops/aten/aten.h"

namespace temper::ops::aten_impl {
namespace {

// Rotates the halves of each head: (a, b) -> (a cos - b sin, b cos + a sin).
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(2) / 2;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({(a * cos).addcmul_(b, sin, -1), (b * cos).addcmul_(a, sin)}, 2);
}

}  // namespace

RotaryRows rotary_rows(const RotaryTable& table, const at::Tensor& position) {
  const auto rows = [&](const at::Tensor& x) {
    return x.to(position.device()).index_select(0, position).unsqueeze(1);
  };
  return {rows(table.cos), rows(table.sin)};
}

at::Tensor prepare_heads(const AttentionSpec& spec, const RotaryRows& rotary, int64_t heads,
                         const at::Tensor& x, const at::Tensor& norm) {
  at::Tensor y = x.view({x.size(0), heads, spec.head_dim});
  if (norm.defined()) y = aten_backend().rms_norm(y, norm, spec.norm_eps, spec.norm_one_plus);
  return rotate(y, rotary.cos, rotary.sin);
}

at::Tensor prepare_heads_backward(const AttentionSpec& spec, const RotaryRows& rotary,
                                  int64_t heads, const at::Tensor& x, const at::Tensor& norm,
                                  const at::Tensor& dy, at::Tensor& dnorm) {
  const at::Tensor back = rotate(dy, rotary.cos, -rotary.sin);
  if (!norm.defined()) return back.view_as(x);
  return aten_backend()
      .rms_norm_backward(x.view({x.size(0), heads, spec.head_dim}), norm, spec.norm_eps,
                         spec.norm_one_plus, back, dnorm)
      .view_as(x);
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
