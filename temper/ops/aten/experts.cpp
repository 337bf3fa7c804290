// A mixture's router, and the combination of its experts' results.
#include <ATen/ATen.h>

#include <limits>
#include <tuple>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// The indices of the `count` largest of each row, of equals the lower.
at::Tensor largest(const at::Tensor& x, int64_t count) {
  return std::get<1>(at::sort(x, /*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, count);
}

at::Tensor without_other_groups(const RouterSpec& spec, const at::Tensor& choice) {
  if (spec.groups == spec.chosen_groups) return choice;
  const at::Tensor groups = choice.view({choice.size(0), spec.groups, -1}),
                   sums = std::get<0>(groups.topk(2, -1)).sum(-1),
                   kept = at::zeros_like(sums, at::kBool)
                              .scatter_(1, largest(sums, spec.chosen_groups), true);
  return groups
      .masked_fill(kept.unsqueeze(-1).bitwise_not(), -std::numeric_limits<double>::infinity())
      .view_as(choice);
}

at::Tensor router_scores(const RouterSpec& spec, const at::Tensor& logits) {
  return spec.score == RouterScore::kSoftmax ? at::softmax(logits, 1) : at::sigmoid(logits);
}
at::Tensor weight_sum(const RouterSpec& spec, const at::Tensor& chosen) {
  const at::Tensor sum = chosen.sum(1, /*keepdim=*/true);
  return spec.score == RouterScore::kSoftmax ? sum : sum.add_(1e-20);
}

}  // namespace
}  // namespace aten_impl

Routing AtenBackend::route(const RouterSpec& spec, const at::Tensor& logits,
                           const at::Tensor& bias) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor scores = aten_impl::router_scores(spec, logits);
  at::Tensor choice = spec.score == RouterScore::kSoftmax ? logits : scores;
  if (bias.defined()) choice = choice + bias;
  const at::Tensor expert = std::get<0>(
      aten_impl::largest(aten_impl::without_other_groups(spec, choice), spec.chosen).sort(1));
  at::Tensor weight = scores.gather(1, expert);
  if (spec.normalize) weight = weight / aten_impl::weight_sum(spec, weight);
  return {expert.contiguous(), weight.mul(spec.scale).contiguous()};
}

// With scores s, q = s / divisor: ds of the chosen ones, and through the softmax or the sigmoid.
at::Tensor AtenBackend::route_backward(const RouterSpec& spec, const at::Tensor& logits,
                                       const at::Tensor& expert, const at::Tensor& dweight) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor scores = aten_impl::router_scores(spec, logits), s = scores.gather(1, expert),
                   g = dweight * spec.scale;
  at::Tensor ds = g;
  if (spec.normalize) {
    const at::Tensor sum = aten_impl::weight_sum(spec, s);
    ds = (g - (g * s / sum).sum(1, /*keepdim=*/true)) / sum;
  }
  const at::Tensor all = at::zeros_like(scores).scatter_(1, expert, ds);
  return spec.score == RouterScore::kSoftmax
             ? scores * (all - (all * scores).sum(1, /*keepdim=*/true))
             : all * scores * (1 - scores);
}

at::Tensor AtenBackend::router_probabilities(const at::Tensor& logits) const {
  const aten_impl::BelowAutograd below;
  return at::softmax(logits, 1);
}

at::Tensor AtenBackend::router_probabilities_backward(const at::Tensor& logits,
                                                      const at::Tensor& g) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor p = at::softmax(logits, 1);
  return p * (g - (g * p).sum(1, /*keepdim=*/true));
}

namespace {

// What places below 0 name, in a tensor with a row of zeros behind the others.
struct PaddedRows {
  at::Tensor rows, place;
};
PaddedRows padded(const at::Tensor& x, const at::Tensor& place) {
  const bool all = x.size(0) == place.numel();
  if (all) return {x, place.view({-1})};
  return {at::cat({x, at::zeros({1, x.size(1)}, x.options())}),
          place.view({-1}).masked_fill(place.view({-1}).lt(0), x.size(0))};
}

}  // namespace

void AtenBackend::combine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
                          at::Tensor& y, bool accumulate) const {
  const aten_impl::BelowAutograd below;
  const PaddedRows from = padded(x, place);
  const at::Tensor rows =
      from.rows.index_select(0, from.place).view({weight.size(0), weight.size(1), x.size(1)});
  const at::Tensor products = rows.mul(weight.unsqueeze(2));
  if (accumulate)
    y.add_(products.sum(1));
  else
    at::sum_out(y, products, 1);
}

std::pair<at::Tensor, at::Tensor> AtenBackend::combine_backward(const at::Tensor& x,
                                                                const at::Tensor& weight,
                                                                const at::Tensor& place,
                                                                const at::Tensor& dy) const {
  const aten_impl::BelowAutograd below;
  const PaddedRows from = padded(x, place);
  const at::Tensor rows =
      from.rows.index_select(0, from.place).view({weight.size(0), weight.size(1), x.size(1)});
  at::Tensor dx = at::empty_like(from.rows);
  dx.index_copy_(0, from.place, (weight.unsqueeze(2) * dy.unsqueeze(1)).view({-1, x.size(1)}));
  return {dx.narrow(0, 0, x.size(0)), rows.mul(dy.unsqueeze(1)).sum(2)};
}

}  // namespace temper::ops
