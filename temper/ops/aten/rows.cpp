// Operations on rows of the batch.
#include <ATen/ATen.h>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/dequantized.h"

namespace temper::ops {
namespace aten_impl {
namespace {

at::Tensor inverse_rms(const at::Tensor& x, double eps) {
  return x.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}
at::Tensor norm_weight(const at::Tensor& weight, bool add_unit_offset) {
  return add_unit_offset ? weight + 1 : weight;
}

const char* approximation(Activation a) { return a == Activation::kGeluTanh ? "tanh" : "none"; }

// Sums of each row: Σ a b, Σ a a, and 1 / (|a| |b|), or 0 where that is not positive: the cosine of
// a row of zeros with anything is 0, and has no gradient.
struct RowDots {
  at::Tensor ab, aa, inverse;
};
RowDots row_dots(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor aa = a.square().sum(1), bb = b.square().sum(1), norm = aa.sqrt() * bb.sqrt();
  return {(a * b).sum(1), aa, norm.reciprocal().masked_fill_(norm.gt(0).bitwise_not_(), 0)};
}

}  // namespace
}  // namespace aten_impl

at::Tensor AtenBackend::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                                 bool add_unit_offset) const {
  const aten_impl::BelowAutograd below;
  return (x * aten_impl::inverse_rms(x, eps)).mul_(aten_impl::norm_weight(weight, add_unit_offset));
}

// With n = x s, s = 1/rms: dx = s (w dy - n mean(w dy n)); dw = Σ_rows dy n.
at::Tensor AtenBackend::rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps,
                                          bool add_unit_offset, const at::Tensor& dy,
                                          at::Tensor& dweight) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor scale = aten_impl::inverse_rms(x, eps), n = x * scale;
  if (dweight.defined()) dweight.add_((dy * n).reshape({-1, weight.size(0)}).sum(0));
  at::Tensor dx = dy * aten_impl::norm_weight(weight, add_unit_offset);
  const at::Tensor mean = (dx * n).mean(-1, /*keepdim=*/true);
  return dx.sub_(n * mean).mul_(scale);
}

at::Tensor AtenBackend::center(const at::Tensor& x) const {
  const aten_impl::BelowAutograd below;
  return x - x.mean(-1, /*keepdim=*/true);
}

at::Tensor AtenBackend::gated(Activation activation, const at::Tensor& gate,
                              const at::Tensor& up) const {
  const aten_impl::BelowAutograd below;
  if (activation == Activation::kIdentity) return gate * up;
  if (activation == Activation::kSigmoid) return at::sigmoid(gate).mul_(up);
  at::Tensor y = activation == Activation::kSilu
                     ? at::silu(gate)
                     : at::gelu(gate, aten_impl::approximation(activation));
  return y.mul_(up);
}

std::pair<at::Tensor, at::Tensor> AtenBackend::gated_backward(Activation activation,
                                                              const at::Tensor& gate,
                                                              const at::Tensor& up,
                                                              const at::Tensor& dy) const {
  const aten_impl::BelowAutograd below;
  if (activation == Activation::kIdentity) return {dy * up, dy * gate};
  if (activation == Activation::kSigmoid) {
    const at::Tensor y = at::sigmoid(gate);
    return {at::sigmoid_backward(dy * up, y), dy * y};
  }
  if (activation == Activation::kSilu)
    return {at::silu_backward(dy * up, gate), at::silu(gate).mul_(dy)};
  const char* kind = aten_impl::approximation(activation);
  return {at::gelu_backward(dy * up, gate, kind), at::gelu(gate, kind).mul_(dy)};
}

at::Tensor AtenBackend::clamp_scaled(const at::Tensor& x, double low, double high, double offset,
                                     double scale) const {
  const aten_impl::BelowAutograd below;
  return x.clamp(low, high).add_(offset).mul_(scale);
}

at::Tensor AtenBackend::add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) const {
  const aten_impl::BelowAutograd below;
  return at::add(a, b, scale);
}

at::Tensor AtenBackend::gather_rows(const Weight& table, const at::Tensor& ids,
                                    double scale) const {
  const aten_impl::BelowAutograd below;
  at::Tensor x;
  if (table.quantized) {
    x = in_input_order(*table.quantized, aten_impl::dequantized_rows(*table.quantized, ids));
  } else {
    Weight rows = table;
    rows.values = table.values.index_select(0, ids);
    x = read(rows);
  }
  return scale == 1 ? x : x * scale;
}

void AtenBackend::scatter_rows(const at::Tensor& x, const at::Tensor& ids, double scale,
                               at::Tensor& to) const {
  const aten_impl::BelowAutograd below;
  // Each in its device's way of adding rows of one id in a fixed order.
  if (x.is_cuda())
    to.index_put_({ids}, scale == 1 ? x : x * scale, /*accumulate=*/true);
  else
    to.index_add_(0, ids, x, scale);
}

// Squares are added in double.
at::Tensor AtenBackend::row_norms(const at::Tensor& x) const {
  const aten_impl::BelowAutograd below;
  return x.to(at::kDouble).square().sum(1).sqrt_().to(x.scalar_type());
}

at::Tensor AtenBackend::scale_columns(const at::Tensor& x, const at::Tensor& factor,
                                      const at::Tensor& bias) const {
  const aten_impl::BelowAutograd below;
  return bias.defined() ? at::addcmul(bias, x, factor) : x * factor;
}

at::Tensor AtenBackend::column_sums(const at::Tensor& a, const at::Tensor& b) const {
  const aten_impl::BelowAutograd below;
  return (a * b).sum(0);
}

at::Tensor AtenBackend::cosine_distance(const at::Tensor& a, const at::Tensor& b) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::RowDots dots = aten_impl::row_dots(a, b);
  return 1 - dots.ab * dots.inverse;
}

// The gradient of 1 - cos is -(b / (|a| |b|) - cos a / |a|²).
at::Tensor AtenBackend::cosine_distance_backward(const at::Tensor& a, const at::Tensor& b,
                                                 const at::Tensor& g) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::RowDots dots = aten_impl::row_dots(a, b);
  const at::Tensor along =
      (dots.ab * dots.inverse / dots.aa).masked_fill_(dots.aa.gt(0).bitwise_not_(), 0);
  return (b * dots.inverse.unsqueeze(1)).sub_(a * along.unsqueeze(1)).mul_(-g.unsqueeze(1));
}

at::Tensor AtenBackend::squared_distance(const at::Tensor& a, const at::Tensor& b) const {
  const aten_impl::BelowAutograd below;
  return (a - b).square_().sum(1);
}

at::Tensor AtenBackend::pool_features(const at::Tensor& x, int64_t width) const {
  const aten_impl::BelowAutograd below;
  const int64_t stride = x.size(1) / width, window = x.size(1) - (width - 1) * stride;
  return x.unfold(1, window, stride).mean(2);
}

}  // namespace temper::ops
