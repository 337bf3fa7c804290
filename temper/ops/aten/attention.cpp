// Attention over a token forest: parts (forest_plan.h) as padded products, joined by log-sum-exp.
#include <ATen/ATen.h>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/forest_plan.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// A call's heads as scores read them.
struct PreparedForest {
  std::shared_ptr<const ForestPlan> plan;
  RotaryRows rotary;
  at::Tensor q, k, v;  // [N, heads, head_dim]
};
PreparedForest prepared_forest(const AttentionSpec& s, const RotaryTable& rotary,
                               const Forest& forest, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v) {
  PreparedForest x{plan_of(forest, q.device()), {}, {}, {}, {}};
  x.rotary = x.plan->rotary(rotary);
  x.q = prepare_queries(s, x.rotary, q);
  x.k = round_to_cache(s, prepare_keys(s, x.rotary, k));
  if (v.defined()) x.v = round_to_cache(s, v).view({v.size(0), s.num_kv_heads, s.head_dim});
  return x;
}

// Softmax over the keys that rows have a result of and over those of one more batch.
void join_rows(const PaddedBatch& batch, const PaddedResult& more, AttentionResult& result) {
  const at::Tensor before = result.log_sum_exp.index_select(0, batch.query_row),
                   joined = at::logaddexp(before, more.log_sum_exp);
  const auto share = [&](const at::Tensor& x) { return (x - joined).exp_().unsqueeze(2); };
  const at::Tensor sum = result.out.index_select(0, batch.query_row)
                             .mul_(share(before))
                             .addcmul_(more.out, share(more.log_sum_exp));
  result.out.index_copy_(0, batch.query_row, sum);
  result.log_sum_exp.index_copy_(0, batch.query_row, joined);
}

// Adds a part to the result [N, heads, head_dim]. The first gives each row one, as its own token is
// among the keys.
void add_part(const AttentionSpec& s, const PreparedForest& x, const ForestPart& part, bool first,
              AttentionResult& result) {
  for (const PaddedBatch& batch : part) {
    const PaddedResult of_batch = padded_attention(s, batch, x.q, x.k, x.v);
    if (!first) {
      join_rows(batch, of_batch, result);
      continue;
    }
    result.out.index_copy_(0, batch.query_row, of_batch.out);
    result.log_sum_exp.index_copy_(0, batch.query_row, of_batch.log_sum_exp);
  }
}

at::Tensor zeros_if_defined(const at::Tensor& x) {
  return x.defined() ? at::zeros_like(x) : at::Tensor();
}

// From gradients of the heads' vectors to those of q, k as projected and the norms.
AttentionGradients projected_gradients(const AttentionSpec& s, const RotaryRows& rotary,
                                       const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& dq, const at::Tensor& dk) {
  AttentionGradients d;
  d.q_norm = zeros_if_defined(s.q_norm);
  d.k_norm = zeros_if_defined(s.k_norm);
  d.q = prepare_queries_backward(s, rotary, q, dq, d.q_norm);
  d.k = prepare_keys_backward(s, rotary, k, dk, d.k_norm);
  return d;
}

}  // namespace
}  // namespace aten_impl

AttentionResult AtenBackend::attention(const AttentionSpec& s, const RotaryTable& rotary,
                                       const Forest& forest, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, q, k, v);
  AttentionResult result{at::empty_like(x.q), at::empty({q.size(0), s.num_heads}, q.options())};
  const auto parts = x.plan->parts(s.window, s.num_heads);
  for (size_t i = 0; i < parts->size(); ++i) aten_impl::add_part(s, x, (*parts)[i], i == 0, result);
  result.out = result.out.view_as(q);
  return result;
}

// Every part with the joined output and log-sum-exp: its probabilities are then the whole row's.
AttentionGradients AtenBackend::attention_backward(const AttentionSpec& s,
                                                   const RotaryTable& rotary, const Forest& forest,
                                                   const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v,
                                                   const AttentionResult& result,
                                                   const at::Tensor& dout) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, q, k, v);
  const at::Tensor by_head = dout.view_as(x.q);
  const aten_impl::PaddedInputs in{
      x.q, x.k, x.v, result.log_sum_exp, by_head, (by_head * result.out.view_as(x.q)).sum(2)};
  aten_impl::PaddedGradients d{at::zeros_like(x.q), at::zeros_like(x.k), at::zeros_like(x.v)};
  const auto parts = x.plan->parts(s.window, s.num_heads);
  for (const aten_impl::ForestPart& part : *parts)
    for (const aten_impl::PaddedBatch& batch : part)
      aten_impl::padded_attention_backward(s, batch, in, d);
  AttentionGradients gradients = aten_impl::projected_gradients(s, x.rotary, q, k, d.q, d.k);
  gradients.v = d.v.view_as(v);
  return gradients;
}

HeadVectors AtenBackend::head_vectors(const AttentionSpec& s, const RotaryTable& rotary,
                                      const Forest& forest, const at::Tensor& q,
                                      const at::Tensor& k) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, q, k, {});
  return {x.q, x.k};
}

AttentionGradients AtenBackend::head_vectors_backward(const AttentionSpec& s,
                                                      const RotaryTable& rotary,
                                                      const Forest& forest, const at::Tensor& q,
                                                      const at::Tensor& k,
                                                      HeadVectors gradients) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::RotaryRows rows = aten_impl::plan_of(forest, q.device())->rotary(rotary);
  return aten_impl::projected_gradients(s, rows, q, k, gradients.q, gradients.k);
}

}  // namespace temper::ops
