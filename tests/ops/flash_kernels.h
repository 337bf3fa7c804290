// What at::_flash_attention_forward and _backward of CUDA compute, on the processor, where LibTorch
// has none of them: bfloat16 in and out, float32 between. Demands of its arguments what those of
// LibTorch demand, and gives what their schema says, so that what calls them can be tested without
// a GPU. A program registers them once:
//
//   TORCH_LIBRARY_IMPL(aten, CPU, m) { temper::flash::add_kernels(m); }
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <tuple>

namespace temper::flash {

using OptionalTensor = std::optional<at::Tensor>;
using OptionalNumber = std::optional<int64_t>;

struct Calls {
  std::atomic<int64_t> forward = 0, backward = 0, paged = 0;
};
inline Calls& calls() {
  static Calls counted;
  return counted;
}
// Whether the output is rounded to the inputs' type, as it is on CUDA. A test of sums of parts
// leaves it.
inline std::atomic<bool> rounds = true;

inline at::Tensor rounded(const at::Tensor& x, at::ScalarType type) {
  return rounds ? x.to(type).to(at::kFloat) : x;
}

inline void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        int64_t kv_heads) {
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16, "number type");
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), "types");
  TORCH_CHECK(q.dim() == 3 && q.size(2) <= 256 && q.size(2) % 8 == 0, "head_dim ", q.sizes());
  TORCH_CHECK(k.size(-1) == q.size(2) && v.sizes() == k.sizes(), "keys ", k.sizes());
  TORCH_CHECK(q.size(1) % kv_heads == 0, "heads");
  TORCH_CHECK(q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1, "strides");
}

// Sums from 0, of which no part is longer than said: what is beyond that would not be computed.
inline void check_starts(const at::Tensor& start, int64_t longest, int64_t rows) {
  TORCH_CHECK(start.scalar_type() == at::kInt && start.dim() == 1 && start.is_contiguous(), "cu");
  TORCH_CHECK(start.size(0) > 1 && start[0].item<int>() == 0, "cu begins at 0");
  TORCH_CHECK(start.diff().max().item<int>() <= longest, "a sequence longer than ", longest);
  TORCH_CHECK(start.diff().min().item<int>() >= 0, "cu does not ascend");
  TORCH_CHECK(start[-1].item<int>() == rows, "cu ends at ", start[-1].item<int>(), " of ", rows);
}

// Which keys each query sees, [queries, keys]: aligned at the last of both.
struct Window {
  int64_t before = -1, behind = -1;  // below 0: all
  at::Tensor seen(int64_t queries, int64_t keys) const {
    const at::Tensor own = at::arange(queries).unsqueeze(1) + (keys - queries),
                     key = at::arange(keys).unsqueeze(0);
    at::Tensor mask = at::ones({queries, keys}, at::kBool);
    if (behind >= 0) mask.logical_and_(key.le(own + behind));
    if (before >= 0) mask.logical_and_(key.ge(own - before));
    return mask;
  }
};
inline Window window_of(bool causal, OptionalNumber before, OptionalNumber behind) {
  return {before.value_or(-1), causal ? 0 : behind.value_or(-1)};
}

// Scaled scores of one sequence by query heads, -inf where a key is not seen.
inline at::Tensor scores(const at::Tensor& q, const at::Tensor& k, double scale,
                         const Window& window) {
  const at::Tensor x = at::einsum("qhd,khd->hqk", {q, k}) * scale;
  return x.masked_fill(window.seen(q.size(0), k.size(0)).logical_not(),
                       -std::numeric_limits<double>::infinity());
}
inline at::Tensor by_query_head(const at::Tensor& x, int64_t heads) {
  return x.to(at::kFloat).repeat_interleave(heads / x.size(1), 1);
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline Forward forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const OptionalTensor& cu_q, const OptionalTensor& cu_k, int64_t max_q,
                       int64_t max_k, double dropout, bool causal, bool debug,
                       std::optional<double> scale, OptionalNumber before, OptionalNumber behind,
                       const OptionalTensor& used, const OptionalTensor& alibi,
                       const OptionalTensor& block_table, OptionalNumber) {
  TORCH_CHECK(cu_q && cu_k && dropout == 0 && !debug && !alibi, "not emulated");
  const bool paged = block_table.has_value();
  check_heads(q, k, v, k.size(-2));
  check_starts(*cu_q, max_q, q.size(0));
  const int64_t count = cu_q->size(0) - 1, heads = q.size(1);
  TORCH_CHECK(cu_k->size(0) == count + 1, "cu_k");
  if (!paged) check_starts(*cu_k, max_k, k.size(0));
  if (paged) {
    TORCH_CHECK(used && k.dim() == 4 && k.size(1) % 256 == 0, "pages of ", k.sizes());
    TORCH_CHECK(block_table->scalar_type() == at::kInt && block_table->size(0) == count, "table");
    TORCH_CHECK(used->max().item<int>() <= max_k, "more keys than ", max_k);
    ++calls().paged;
  }
  if (used) TORCH_CHECK(used->scalar_type() == at::kInt && used->size(0) == count, "seqused_k");
  ++calls().forward;
  at::Tensor out = at::zeros(q.sizes(), at::kFloat), lse = at::zeros({heads, q.size(0)});
  for (int64_t b = 0; b < count; ++b) {
    const int64_t first = (*cu_q)[b].item<int>(), rows = (*cu_q)[b + 1].item<int>() - first,
                  start = (*cu_k)[b].item<int>(),
                  keys = used ? (*used)[b].item<int>() : (*cu_k)[b + 1].item<int>() - start;
    const auto own = [&](const at::Tensor& x) {
      const at::Tensor all = paged
                                 ? x.index_select(0, (*block_table)[b].to(at::kLong)).flatten(0, 1)
                                 : x.narrow(0, start, x.size(0) - start);
      return by_query_head(all.narrow(0, 0, keys), heads);
    };
    const at::Tensor s =
        scores(q.narrow(0, first, rows).to(at::kFloat), own(k),
               scale.value_or(1 / std::sqrt(q.size(2))), window_of(causal, before, behind));
    const at::Tensor max = s.amax(2, true).clamp_min(-1e30), e = (s - max).exp(), sum = e.sum(2);
    const at::Tensor none = sum.eq(0);
    out.narrow(0, first, rows)
        .copy_(at::einsum("hqk,khd->qhd", {rounded(e, q.scalar_type()), own(v)}) /
               sum.masked_fill(none, 1).t().unsqueeze(2));
    lse.narrow(1, first, rows)
        .copy_((max.squeeze(2) + sum.log())
                   .masked_fill(none, std::numeric_limits<double>::infinity()));
  }
  return {rounds ? out.to(q.scalar_type()) : out, lse, at::empty({2}, at::kUInt64),
          at::empty({}, at::kUInt64), at::empty({0}, q.options())};
}

using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline Backward backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                         const at::Tensor& cu_q, const at::Tensor& cu_k, int64_t max_q,
                         int64_t max_k, double dropout, bool causal, const at::Tensor& state,
                         const at::Tensor& unused, std::optional<double> scale,
                         OptionalNumber before, OptionalNumber behind) {
  TORCH_CHECK(dropout == 0 && state.defined() && unused.defined(), "not emulated");
  check_heads(q, k, v, k.size(1));
  check_starts(cu_q, max_q, q.size(0));
  check_starts(cu_k, max_k, k.size(0));
  for (const at::Tensor& x : {dout, out})
    TORCH_CHECK(x.scalar_type() == q.scalar_type() && x.sizes() == q.sizes(), "out ", x.sizes());
  TORCH_CHECK(lse.scalar_type() == at::kFloat && lse.is_contiguous() && lse.dim() == 2 &&
                  lse.size(0) == q.size(1) && lse.size(1) == q.size(0),
              "logsumexp ", lse.sizes());
  ++calls().backward;
  const int64_t heads = q.size(1), group = heads / k.size(1);
  const double by = scale.value_or(1 / std::sqrt(q.size(2)));
  at::Tensor dq = at::zeros(q.sizes()), dk = at::zeros({k.size(0), heads, k.size(2)}),
             dv = at::zeros_like(dk);
  for (int64_t b = 0; b < cu_q.size(0) - 1; ++b) {
    const int64_t first = cu_q[b].item<int>(), rows = cu_q[b + 1].item<int>() - first,
                  start = cu_k[b].item<int>(), keys = cu_k[b + 1].item<int>() - start;
    const auto queries = [&](const at::Tensor& x) {
      return x.narrow(0, first, rows).to(at::kFloat);
    };
    const at::Tensor own_k = by_query_head(k.narrow(0, start, keys), heads),
                     own_v = by_query_head(v.narrow(0, start, keys), heads), own_q = queries(q),
                     g = queries(dout);
    const at::Tensor p = (scores(own_q, own_k, by, window_of(causal, before, behind)) -
                          lse.narrow(1, first, rows).unsqueeze(2))
                             .exp();
    const at::Tensor delta = (g * queries(out)).sum(2).t().unsqueeze(2);
    const at::Tensor ds =
        rounded(p * (at::einsum("qhd,khd->hqk", {g, own_v}) - delta), q.scalar_type());
    dq.narrow(0, first, rows).add_(at::einsum("hqk,khd->qhd", {ds, own_k}) * by);
    dk.narrow(0, start, keys).add_(at::einsum("hqk,qhd->khd", {ds, own_q}) * by);
    dv.narrow(0, start, keys).add_(at::einsum("hqk,qhd->khd", {rounded(p, q.scalar_type()), g}));
  }
  const auto of_kv_head = [&](const at::Tensor& x) {
    return x.to(rounds ? q.scalar_type() : at::kFloat)
        .view({x.size(0), heads / group, group, x.size(2)})
        .sum(2);
  };
  return {rounds ? dq.to(q.scalar_type()) : dq, of_kv_head(dk), of_kv_head(dv)};
}

inline void add_kernels(torch::Library& m) {
  m.impl("_flash_attention_forward", &forward);
  m.impl("_flash_attention_backward", &backward);
}

}  // namespace temper::flash
