// Attention over a token forest: parts (forest_plan.h) as padded products or by flash kernels,
// joined by log-sum-exp.
#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/forest_plan.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// A call's heads as scores read them.
struct PreparedForest {
  std::shared_ptr<const ForestPlan> plan;
  RotaryRows query_rotary, rotary;  // of the queries' tokens, and of all
  at::Tensor q, k, v;               // [rows, heads, head_dim]
};
PreparedForest prepared_forest(const AttentionSpec& s, const RotaryTable& rotary,
                               const Forest& forest, int64_t first, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v) {
  const int64_t n = q.size(0);
  PreparedForest x{plan_of(forest, {first, first + n}, q.device()), {}, {}, {}, {}, {}};
  x.rotary = x.plan->rotary(rotary);
  x.query_rotary = range_of(x.rotary, first, n);
  x.q = prepare_queries(s, x.query_rotary, q);
  x.k = round_to_cache(s, prepare_keys(s, x.rotary, k));
  if (s.values_in_keys)
    x.v = x.k;
  else if (v.defined())
    x.v = round_to_cache(s, v).view({v.size(0), s.num_kv_heads, s.head_dim});
  return x;
}

// Whether parts may be computed by flash kernels.
bool takes_flash(const AttentionSpec& s, const at::Tensor& q) {
  return q.scalar_type() == at::kFloat && takes_flash_attention(s, q.device());
}
FlashInputs rounded_heads(const PreparedForest& x) {
  return {x.q.to(at::kBFloat16), x.k.to(at::kBFloat16), x.v.to(at::kBFloat16), {}, {}, {}};
}

// The flash kernels' form of a part, null where padded products compute it: those of ancestors know
// no window, so that it must reach over all of them.
std::shared_ptr<const FlashPart> flash_part(const AttentionSpec& s, const ForestPlan& plan,
                                            int64_t depth) {
  if (plan.opens(s, depth)) return nullptr;
  std::shared_ptr<const FlashPart> part = plan.flash_part(depth);
  const bool reaches = depth == 0 || s.window == 0 || part->farthest < s.window,
             fits = part->batch.query_start.size(0) - 1 <= kMostFlashSequences,
             any = part->batch.longest_query > 0;
  return reaches && fits && any ? part : nullptr;
}

// Softmax over the keys that rows have a result of and over more keys.
void join_rows(const at::Tensor& rows, const PaddedResult& more, AttentionResult& result) {
  const at::Tensor before = result.log_sum_exp.index_select(0, rows),
                   joined = at::logaddexp(before, more.log_sum_exp);
  const auto share = [&](const at::Tensor& x) { return (x - joined).exp_().unsqueeze(2); };
  const at::Tensor sum = result.out.index_select(0, rows)
                             .mul_(share(before))
                             .addcmul_(more.out, share(more.log_sum_exp));
  result.out.index_copy_(0, rows, sum);
  result.log_sum_exp.index_copy_(0, rows, joined);
}

// Adds a part to the result [N, heads, head_dim]. The first gives each row one, as its own token is
// among the keys.
void add_padded_part(const AttentionSpec& s, const PreparedForest& x, const PaddedPart& part,
                     bool first, AttentionResult& result) {
  for (const PaddedBatch& batch : part) {
    const PaddedResult of_batch = padded_attention(s, batch, x.q, x.k, x.v);
    if (!first) {
      join_rows(batch.query_row, of_batch, result);
      continue;
    }
    result.out.index_copy_(0, batch.query_row, of_batch.out);
    result.log_sum_exp.index_copy_(0, batch.query_row, of_batch.log_sum_exp);
  }
}
void add_flash_part(const AttentionSpec& s, const FlashInputs& in, const FlashBatch& batch,
                    AttentionResult& result) {
  const PaddedResult of_batch = flash_attention(s, batch, in);
  if (batch.query_row.defined())
    join_rows(batch.query_row, of_batch, result);
  else
    result = {of_batch.out, of_batch.log_sum_exp};
}

at::Tensor zeros_if_defined(const at::Tensor& x) {
  return x.defined() ? at::zeros_like(x) : at::Tensor();
}

// From gradients of the heads' vectors to those of q, k as projected and the norms.
AttentionGradients projected_gradients(const AttentionSpec& s, const RotaryRows& query_rotary,
                                       const RotaryRows& rotary, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& dq,
                                       const at::Tensor& dk) {
  AttentionGradients d;
  d.q_norm = zeros_if_defined(s.q_norm);
  d.k_norm = zeros_if_defined(s.k_norm);
  d.q = prepare_queries_backward(s, query_rotary, q, dq, d.q_norm);
  d.k = prepare_keys_backward(s, rotary, k, dk, d.k_norm);
  return d;
}

// Memory of attention beside its arguments and results, counted as its code allocates it.
constexpr int64_t kFloatBytes = 4, kHalfBytes = 2;

// Numbers in the heads of a pass.
struct HeadNumbers {
  int64_t query, key;  // all rows of queries, and of keys
};
HeadNumbers numbers_of(const AttentionSpec& s, const PassSize& pass) {
  return {pass.rows * s.num_heads * s.head_dim, pass.rows * s.num_kv_heads * s.head_dim};
}

// Normalized and rotated heads, their gradients, and dout times out.
int64_t heads_bytes(const HeadNumbers& n) {
  return kFloatBytes * (2 * (n.query + 2 * n.key) + 2 * n.query);
}

// The largest batch: probabilities and their gradient, the cap's slope; what is gathered of
// queries, keys, values and dout, and the gradients that are added. Of the scores at most a third
// is padding.
int64_t padded_bytes(const AttentionSpec& s, const PassSize& pass, at::Device device) {
  const int64_t of_row = s.num_heads * pass.longest,
                scores = std::min(std::max(scratch_numbers(device), kFewestRows * of_row),
                                  pass.rows * of_row * 3 / 2);
  const HeadNumbers n = numbers_of(s, pass);
  return kFloatBytes * ((s.soft_cap > 0 ? 3 : 2) * scores + 2 * (3 * n.query + 4 * n.key));
}

// Rounded queries, keys, values, output and dout, and gradients; within the kernel a float32 sum of
// the queries' gradients, and the keys' and values' by query heads.
int64_t flash_bytes(const AttentionSpec& s, const PassSize& pass) {
  const HeadNumbers n = numbers_of(s, pass);
  const int64_t grouped = s.num_heads == s.num_kv_heads ? 0 : 2 * n.query;
  return kHalfBytes * (3 * n.query + 2 * n.key + n.query + 2 * n.key + grouped) +
         kFloatBytes * 2 * n.query;
}

}  // namespace
}  // namespace aten_impl

AttentionResult AtenBackend::attention(const AttentionSpec& s, const RotaryTable& rotary,
                                       const Forest& forest, int64_t first, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, first, q, k, v);
  AttentionResult result{at::empty_like(x.q), at::empty({q.size(0), s.num_heads}, q.options())};
  aten_impl::FlashInputs rounded;
  const bool flash = aten_impl::takes_flash(s, q);
  if (flash) rounded = aten_impl::rounded_heads(x);
  for (int64_t depth = 0; depth < x.plan->parts(); ++depth) {
    if (const auto part = flash ? aten_impl::flash_part(s, *x.plan, depth) : nullptr)
      aten_impl::add_flash_part(s, rounded, part->batch, result);
    else
      aten_impl::add_padded_part(s, x, *x.plan->padded_part(depth, s), depth == 0, result);
  }
  aten_impl::PaddedResult all{result.out, result.log_sum_exp};
  aten_impl::join_sinks(s, all);
  return {all.out.view_as(q), all.log_sum_exp};
}

// Every part with the joined output and log-sum-exp: its probabilities are then the whole row's.
AttentionGradients AtenBackend::attention_backward(const AttentionSpec& s,
                                                   const RotaryTable& rotary, const Forest& forest,
                                                   int64_t first, const at::Tensor& q,
                                                   const at::Tensor& k, const at::Tensor& v,
                                                   const AttentionResult& result,
                                                   const at::Tensor& dout) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, first, q, k, v);
  const at::Tensor by_head = dout.view_as(x.q), out = result.out.view_as(x.q);
  aten_impl::PaddedInputs in{x.q, x.k, x.v, result.log_sum_exp, by_head, {}};
  aten_impl::FlashInputs rounded;
  const bool flash = aten_impl::takes_flash(s, q);
  if (flash) {
    rounded = aten_impl::rounded_heads(x);
    rounded.out = out.to(at::kBFloat16);
    rounded.log_sum_exp = result.log_sum_exp;
    rounded.dout = by_head.to(at::kBFloat16);
  }
  aten_impl::PaddedGradients d{at::zeros_like(x.q), at::zeros_like(x.k), at::zeros_like(x.v)};
  for (int64_t depth = 0; depth < x.plan->parts(); ++depth) {
    if (const auto part = flash ? aten_impl::flash_part(s, *x.plan, depth) : nullptr) {
      aten_impl::flash_attention_backward(s, part->batch, rounded, d);
      continue;
    }
    if (!in.delta.defined()) in.delta = (by_head * out).sum(2);
    for (const aten_impl::PaddedBatch& batch : *x.plan->padded_part(depth, s))
      aten_impl::padded_attention_backward(s, batch, in, d);
  }
  if (s.values_in_keys) d.k.add_(d.v);
  AttentionGradients gradients =
      aten_impl::projected_gradients(s, x.query_rotary, x.rotary, q, k, d.q, d.k);
  if (!s.values_in_keys) gradients.v = d.v.view_as(v);
  return gradients;
}

HeadVectors AtenBackend::head_vectors(const AttentionSpec& s, const RotaryTable& rotary,
                                      const Forest& forest, const at::Tensor& q,
                                      const at::Tensor& k) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::PreparedForest x = aten_impl::prepared_forest(s, rotary, forest, 0, q, k, {});
  return {x.q, x.k};
}

AttentionGradients AtenBackend::head_vectors_backward(const AttentionSpec& s,
                                                      const RotaryTable& rotary,
                                                      const Forest& forest, const at::Tensor& q,
                                                      const at::Tensor& k,
                                                      HeadVectors gradients) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::RotaryRows rows =
      aten_impl::plan_of(forest, {0, q.size(0)}, q.device())->rotary(rotary);
  return aten_impl::projected_gradients(s, rows, rows, q, k, gradients.q, gradients.k);
}

int64_t AtenBackend::attention_scratch(const AttentionSpec& s, const PassSize& pass,
                                       at::Device device) const {
  const int64_t heads = aten_impl::heads_bytes(aten_impl::numbers_of(s, pass));
  // Parts of ancestors that a window cuts are padded in either case.
  if (aten_impl::takes_flash_attention(s, device) && (s.window == 0 || pass.longest <= s.window))
    return heads + aten_impl::flash_bytes(s, pass);
  return heads + aten_impl::padded_bytes(s, pass, device);
}

}  // namespace temper::ops
