#include "temper/ops/aten/padded_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/ops/aten/common.h"

namespace temper::ops::aten_impl {
namespace {

// Scores of a batch that are so few are not worth a batch of their own.
constexpr int64_t kFewScores = int64_t{1} << 16;

// Sizes of a batch's products: kv heads are part of the batch, query heads of one kv head are rows.
struct Sizes {
  int64_t batch, queries, keys, kv_heads, group, dim;
};
Sizes sizes_of(const AttentionSpec& s, const PaddedBatch& b) {
  return {
      b.query.size(0), b.query.size(1), b.key.size(1), s.num_kv_heads, s.num_heads / s.num_kv_heads,
      s.head_dim};
}

// Rows [B, L] of x [N, heads, d] as [B * kv, heads / kv * L, d].
at::Tensor gather(const at::Tensor& x, const at::Tensor& rows, int64_t kv_heads) {
  const int64_t batch = rows.size(0), length = rows.size(1), group = x.size(1) / kv_heads;
  return x.index_select(0, rows.view({-1}))
      .view({batch, length, kv_heads, group, x.size(2)})
      .permute({0, 2, 3, 1, 4})
      .reshape({batch * kv_heads, group * length, x.size(2)});
}

// The inverse: [n, heads, d] of the places that are no padding.
at::Tensor places(const at::Tensor& x, int64_t batch, int64_t length, const at::Tensor& place) {
  const int64_t kv_heads = x.size(0) / batch, group = x.size(1) / length;
  const at::Tensor all = x.view({batch, kv_heads, group, length, x.size(2)})
                             .permute({0, 3, 1, 2, 4})
                             .reshape({batch * length, kv_heads * group, x.size(2)});
  return place.defined() ? all.index_select(0, place) : all;
}

// Keys or values [B * kv, Lk, d] as numbers of the queries' type.
at::Tensor gather_keys(const at::Tensor& x, const PaddedBatch& b, at::ScalarType type) {
  const int64_t batch = b.key.size(0), length = b.key.size(1), heads = x.size(1);
  const at::Tensor rows =
      x.index_select(0, b.key.view({-1})).view({batch, length, heads, x.size(2)}).transpose(1, 2);
  // One pass for both, the type and the order.
  return rows.to(type, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::Contiguous)
      .reshape({batch * heads, length, x.size(2)});
}
// Keeps rows of padding finite: a probability of 0 times NaN or infinity would be NaN.
at::Tensor gather_values(const at::Tensor& x, const PaddedBatch& b, at::ScalarType type) {
  at::Tensor y = gather_keys(x, b, type);
  if (b.padding_is_any)
    y.view({b.key.size(0), x.size(1), b.key.size(1), x.size(2)})
        .masked_fill_(b.key_position.eq(kNoKey).view({b.key.size(0), 1, -1, 1}), 0);
  return y;
}

// Soft-capped scores of scaled queries, [B * kv, group * Lq, Lk].
at::Tensor scores(const AttentionSpec& s, const at::Tensor& q, const at::Tensor& k) {
  at::Tensor x = at::bmm(q, k.transpose(1, 2));
  if (s.soft_cap > 0) x.div_(s.soft_cap).tanh_().mul_(s.soft_cap);
  return x;
}

// Fills what is out of reach, by absolute positions.
void fill_hidden(const AttentionSpec& s, const PaddedBatch& b, const Sizes& n, at::Tensor& x,
                 double value) {
  if (!b.masked) return;
  const at::Tensor query = b.query_position.unsqueeze(2), key = b.key_position.unsqueeze(1);
  at::Tensor hidden = b.open_end.defined() ? key >= b.open_end.unsqueeze(2) : key > query;
  if (s.window > 0) hidden.bitwise_or_((query - key).ge(s.window));
  x.view({n.batch, n.kv_heads, n.group, n.queries, n.keys})
      .masked_fill_(hidden.view({n.batch, 1, 1, n.queries, n.keys}), value);
}

}  // namespace

std::vector<std::vector<size_t>> batches_of(const std::vector<RectangleSize>& sizes, int64_t heads,
                                            int64_t wide, int64_t most) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(sizes[a].keys, sizes[a].queries) > std::pair(sizes[b].keys, sizes[b].queries);
  });
  std::vector<std::vector<size_t>> batches;
  int64_t queries = 0, keys = 0, real = 0;
  for (const size_t i : order) {
    const RectangleSize& size = sizes[i];
    const auto count = static_cast<int64_t>(batches.empty() ? 1 : batches.back().size() + 1);
    const int64_t longest = std::max(queries, size.queries), all = real + size.queries * size.keys;
    const int64_t padded = count * longest * keys;
    const bool fits = !batches.empty() && padded * heads <= most && count * keys * wide <= most &&
                      (padded <= 2 * all || padded * heads <= kFewScores);
    if (!fits) batches.emplace_back();
    queries = fits ? longest : size.queries;
    keys = fits ? keys : size.keys;
    real = fits ? all : size.queries * size.keys;
    batches.back().push_back(i);
  }
  return batches;
}

void join_sinks(const AttentionSpec& s, PaddedResult& result) {
  if (!s.sinks.defined()) return;
  result.out.mul_((result.log_sum_exp - s.sinks).sigmoid_().unsqueeze(2));
  result.log_sum_exp = at::logaddexp(result.log_sum_exp, s.sinks);
}

PaddedResult padded_attention(const AttentionSpec& s, const PaddedBatch& b, const at::Tensor& q,
                              const at::Tensor& k, const at::Tensor& v) {
  const Sizes n = sizes_of(s, b);
  at::Tensor p =
      scores(s, gather(q, b.query, n.kv_heads).mul_(s.scale), gather_keys(k, b, q.scalar_type()));
  fill_hidden(s, b, n, p, -std::numeric_limits<double>::infinity());
  // A row without a key has the maximum -inf, which must not be subtracted.
  at::Tensor max = p.amax(-1, /*keepdim=*/true);
  max.masked_fill_(max.eq(-std::numeric_limits<double>::infinity()), 0);
  p.sub_(max).exp_();
  const at::Tensor sum = p.sum(-1, /*keepdim=*/true), lse = max.add_(sum.log());
  at::Tensor out = at::bmm(p, gather_values(v, b, q.scalar_type()));
  out.div_(sum.masked_fill(sum.eq(0), 1));
  return {places(out, n.batch, n.queries, b.query_place),
          places(lse, n.batch, n.queries, b.query_place).squeeze(2)};
}

// P = exp(s - lse) and delta are of whole rows, so the sum over all batches of a row is its
// gradient. Queries are scaled before they meet keys.
void padded_attention_backward(const AttentionSpec& s, const PaddedBatch& b, const PaddedInputs& in,
                               PaddedGradients& gradients) {
  const Sizes n = sizes_of(s, b);
  const auto rows = [&](const at::Tensor& x) { return gather(x, b.query, n.kv_heads); };
  const at::Tensor q = rows(in.q).mul_(s.scale), dout = rows(in.dout),
                   k = gather_keys(in.k, b, q.scalar_type()),
                   v = gather_keys(in.v, b, q.scalar_type());
  at::Tensor p = scores(s, q, k), slope;
  if (s.soft_cap > 0) slope = p.div(s.soft_cap).square_().neg_().add_(1);
  p.sub_(rows(in.log_sum_exp.unsqueeze(2))).exp_();
  fill_hidden(s, b, n, p, 0);
  at::Tensor ds = at::bmm(dout, v.transpose(1, 2)).sub_(rows(in.delta.unsqueeze(2))).mul_(p);
  if (slope.defined()) ds.mul_(slope);
  const auto add = [&](at::Tensor& to, const at::Tensor& row, const at::Tensor& place,
                       int64_t length, const at::Tensor& x) {
    to.index_add_(0, row, places(x, n.batch, length, place));
  };
  add(gradients.q, b.query_row, b.query_place, n.queries, at::bmm(ds, k).mul_(s.scale));
  add(gradients.k, b.key_row, b.key_place, n.keys, at::bmm(ds.transpose(1, 2), q));
  add(gradients.v, b.key_row, b.key_place, n.keys, at::bmm(p.transpose(1, 2), dout));
}

}  // namespace temper::ops::aten_impl
