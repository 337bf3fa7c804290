#include "temper/ops/layers/attention.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/cache_rounding.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {

// As of any score, p (dp - Σ_j p_j dp_j): a sink's probability p is exp(sink - lse), its dp is 0,
// as its key has no value, and the sum is dout · out.
at::Tensor gradient_of_sinks(const at::Tensor& sinks, const AttentionResult& result,
                             const at::Tensor& dout) {
  const int64_t rows = dout.size(0), heads = sinks.size(0);
  const at::Tensor delta = sum_in_rows((dout * result.out).view({rows, heads, -1}));
  const at::NoGradGuard no_grad;
  return sum_of_rows(ops::exp(sinks - result.log_sum_exp).mul_(delta)).neg_();
}

}  // namespace

at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::shared_ptr<const Forest>& forest, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v, int64_t first) {
  check(
      first >= 0 && q.size(0) <= forest->num_tokens() - first && k.size(0) == forest->num_tokens(),
      "attention: ", q.size(0), " queries from token ", first, " on and ", k.size(0),
      " keys of a forest of ", forest->num_tokens());
  check(v.defined() != spec.values_in_keys, "attention: values beside keys that are them, or none");
  Recording call({q, k, v, spec.q_norm, spec.k_norm, spec.sinks});
  const AttentionResult result = backend_of(q).attention(spec, rotary, *forest, first, q, k, v);
  call.reads({q, k, v, spec.q_norm, spec.k_norm, spec.sinks, result.out, result.log_sum_exp});
  return call.output(result.out, [=](const Gradients& d) -> Tensors {
    const AttentionGradients of =
        backend_of(q).attention_backward(spec, rotary, *forest, first, q, k, v, result, d[0]);
    at::Tensor dsinks;
    if (spec.sinks.defined()) dsinks = gradient_of_sinks(spec.sinks, result, d[0]);
    return {of.q, of.k, of.v, of.q_norm, of.k_norm, dsinks};
  });
}

namespace {

// A piece's part of a call.
struct PieceInputs {
  RotaryTable rotary;
  at::Tensor q, k, v;
};
PieceInputs inputs_of(const QueryPiece& piece, int64_t first_query, const RotaryTable& rotary,
                      const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto keys = [&](const at::Tensor& x) {
    return x.defined() ? x.narrow(0, piece.first_key, piece.forest->num_tokens()) : x;
  };
  RotaryTable own = rotary;
  if (rotary.by_token)
    for (at::Tensor* of : {&own.cos, &own.sin, &own.query_scale}) *of = keys(*of);
  return {own, q.narrow(0, first_query, piece.count), keys(k), keys(v)};
}

// Adds a piece's part of a gradient to what the pieces before have given.
void add_part(at::Tensor& sum, const at::Tensor& part) {
  if (!part.defined()) return;
  if (sum.defined())
    sum.add_(part);
  else
    sum = part;
}

}  // namespace

at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::vector<QueryPiece>& pieces, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v) {
  check(v.defined() != spec.values_in_keys, "attention: values beside keys that are them, or none");
  Recording call({q, k, v, spec.q_norm, spec.k_norm, spec.sinks});
  const Backend& backend = backend_of(q);
  std::vector<AttentionResult> results;
  std::vector<at::Tensor> outs;
  int64_t first_query = 0;
  for (const QueryPiece& piece : pieces) {
    const PieceInputs in = inputs_of(piece, first_query, rotary, q, k, v);
    results.push_back(
        backend.attention(spec, in.rotary, *piece.forest, piece.first, in.q, in.k, in.v));
    outs.push_back(results.back().out);
    first_query += piece.count;
  }
  check(first_query == q.size(0), "attention: ", q.size(0), " queries, and pieces of ",
        first_query);
  const at::Tensor out = at::cat(outs);
  first_query = 0;
  for (size_t i = 0; i < pieces.size(); first_query += pieces[i++].count)
    results[i].out = out.narrow(0, first_query, pieces[i].count);
  call.reads({q, k, v, spec.q_norm, spec.k_norm, spec.sinks, out});
  return call.output(out, [=](const Gradients& d) -> Tensors {
    std::vector<at::Tensor> dq;
    at::Tensor dk = at::zeros_like(k), dv, dq_norm, dk_norm, dsinks;
    if (v.defined()) dv = at::zeros_like(v);
    int64_t query = 0;
    for (size_t i = 0; i < pieces.size(); query += pieces[i++].count) {
      const QueryPiece& piece = pieces[i];
      const PieceInputs in = inputs_of(piece, query, rotary, q, k, v);
      const at::Tensor dout = d[0].narrow(0, query, piece.count);
      const AttentionGradients of = backend_of(q).attention_backward(
          spec, in.rotary, *piece.forest, piece.first, in.q, in.k, in.v, results[i], dout);
      const int64_t keys = piece.forest->num_tokens();
      dq.push_back(of.q);
      dk.narrow(0, piece.first_key, keys).add_(of.k);
      if (dv.defined()) dv.narrow(0, piece.first_key, keys).add_(of.v);
      add_part(dq_norm, of.q_norm);
      add_part(dk_norm, of.k_norm);
      if (spec.sinks.defined()) add_part(dsinks, gradient_of_sinks(spec.sinks, results[i], dout));
    }
    return {at::cat(dq), dk, dv, dq_norm, dk_norm, dsinks};
  });
}

at::Tensor round_to_cache(CacheDtype dtype, const at::Tensor& x) {
  if (dtype == CacheDtype::kFloat32 || x.scalar_type() == at::kDouble) return x;
  constexpr double kLargestFloat16 = 65504;
  const bool half = dtype == CacheDtype::kFloat16;
  Recording call({x});
  const at::Tensor in_range =
      half ? backend_of(x).clamp_scaled(x, -kLargestFloat16, kLargestFloat16, 0, 1) : x;
  return call.output(in_range.to(half ? at::kHalf : at::kBFloat16).to(at::kFloat),
                     [](const Gradients& d) -> Tensors { return {d[0]}; });
}

}  // namespace temper::ops
