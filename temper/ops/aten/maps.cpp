// Attention maps of a tile of query tokens, and their comparisons. Out of a row's reach all maps
// are 0, so that sums over all keys are sums over those in reach.
#include <ATen/ATen.h>

#include <limits>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// The tile's queries [kv heads, query heads of each * rows, head_dim], and keys [kv heads, keys,
// head_dim].
at::Tensor tile_queries(const AttentionSpec& s, const at::Tensor& q, const MapTile& t) {
  return q.narrow(0, t.first, t.rows).transpose(0, 1).reshape({s.num_kv_heads, -1, s.head_dim});
}
at::Tensor tile_keys(const HeadVectors& heads, const MapTile& t) {
  return heads.k.index_select(0, t.keys).transpose(0, 1);
}

// [rows, keys]: true where a row does not attend to a key.
at::Tensor out_of_reach(const AttentionSpec& s, const MapTile& t) {
  const at::Tensor key = at::arange(t.num_keys(), t.keys.options()),
                   row = at::arange(t.before, t.before + t.rows, t.keys.options()).unsqueeze(1);
  at::Tensor hidden = key > row;
  if (s.window > 0) hidden.bitwise_or_((row - key).ge(s.window));
  return hidden;
}

// The mean of the teacher's heads for each of the student's.
at::Tensor group_means(const at::Tensor& a, const at::Tensor& b) {
  return b.view({a.size(0), b.size(0) / a.size(0), b.size(1), b.size(2)}).mean(1);
}

// b becomes Σ_s map[t, s] a_s - b_t.
at::Tensor errors(const at::Tensor& a, const at::Tensor& b, const at::Tensor& map) {
  b.view({b.size(0), -1}).addmm_(map, a.view({a.size(0), -1}), /*beta=*/-1);
  return b;
}

}  // namespace
}  // namespace aten_impl

TileMaps AtenBackend::maps(const AttentionSpec& s, const HeadVectors& heads, const MapTile& t,
                           bool with_capped) const {
  const aten_impl::BelowAutograd below;
  at::Tensor x = at::bmm(aten_impl::tile_queries(s, heads.q, t),
                         aten_impl::tile_keys(heads, t).transpose(1, 2))
                     .mul_(s.scale)
                     .view({s.num_heads, t.rows, t.num_keys()});
  TileMaps out;
  if (s.soft_cap > 0) x.div_(s.soft_cap).tanh_().mul_(s.soft_cap);
  if (s.soft_cap > 0 && with_capped) out.capped = x.clone();
  x.masked_fill_(aten_impl::out_of_reach(s, t), -std::numeric_limits<double>::infinity());
  out.probability = x.softmax(-1);
  if (!s.sinks.defined()) return out;
  const at::Tensor of_sink = (s.sinks.view({-1, 1, 1}) - x.amax(-1, /*keepdim=*/true)).exp_();
  out.probability.div_(of_sink.mul_(out.probability.amax(-1, true)).add_(1));
  return out;
}

void AtenBackend::maps_backward(const AttentionSpec& s, const HeadVectors& heads, const MapTile& t,
                                const TileMaps& maps, at::Tensor dp, HeadVectors& gradients) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor& p = maps.probability;
  dp.masked_fill_(aten_impl::out_of_reach(s, t), 0);
  at::Tensor ds = dp.sub_((p * dp).sum(-1, /*keepdim=*/true)).mul_(p).mul_(s.scale);
  if (maps.capped.defined()) ds.mul_(1 - maps.capped.div(s.soft_cap).square_());
  ds = ds.view({s.num_kv_heads, -1, t.num_keys()});
  const at::Tensor to_q = at::bmm(ds, aten_impl::tile_keys(heads, t)),
                   to_k = at::bmm(ds.transpose(1, 2), aten_impl::tile_queries(s, heads.q, t));
  gradients.q.narrow(0, t.first, t.rows)
      .add_(to_q.view({s.num_heads, t.rows, s.head_dim}).transpose(0, 1));
  gradients.k.index_add_(0, t.keys, to_k.transpose(0, 1));
}

at::Tensor AtenBackend::map_cosine(const MapTile&, const at::Tensor& a, const at::Tensor& b) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor mean = aten_impl::group_means(a, b);
  const at::Tensor norm = (a.square().sum(2) * mean.square().sum(2)).sqrt_();
  return (1 - (a * mean).sum(2) / norm).sum(0).div_(a.size(0));
}

at::Tensor AtenBackend::map_cosine_backward(const MapTile&, const at::Tensor& a,
                                            const at::Tensor& b, const at::Tensor& g) const {
  const aten_impl::BelowAutograd below;
  at::Tensor mean = aten_impl::group_means(a, b);
  const at::Tensor aa = a.square().sum(2, /*keepdim=*/true),
                   norm = (aa * mean.square().sum(2, true)).sqrt_(),
                   along = (a * mean).sum(2, true) / (norm * aa);
  return mean.div_(norm).sub_(a * along).mul_(g.view({1, -1, 1}) / -a.size(0));
}

at::Tensor AtenBackend::map_squared_error(const MapTile&, const at::Tensor& a, at::Tensor b,
                                          const at::Tensor& map) const {
  const aten_impl::BelowAutograd below;
  return aten_impl::errors(a, b, map).square_().sum({0, 2});
}

at::Tensor AtenBackend::map_squared_error_backward(const MapTile&, const at::Tensor& a,
                                                   at::Tensor b, const at::Tensor& map,
                                                   const at::Tensor& g, at::Tensor& dmap) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor error =
      aten_impl::errors(a, b, map).mul_(g.view({1, -1, 1}) * 2).view({b.size(0), -1});
  dmap.addmm_(error, a.view({a.size(0), -1}).t());
  return at::mm(map.t(), error).view_as(a);
}

}  // namespace temper::ops
