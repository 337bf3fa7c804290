#include "temper/ops/attention.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/forest_attention.h"
#include "temper/ops/head_vectors.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

kernels::AttentionShape shape_of(const AttentionSpec& s) {
  return {s.num_heads, s.num_kv_heads, s.head_dim, s.scale, s.soft_cap, s.window, s.cache_dtype};
}
kernels::ForestView view(const Forest& f) {
  return {f.num_tokens(), f.num_segments(), f.segment_start.data(), f.parent.data(),
          f.subtree_end.data()};
}

struct AttentionKept {
  AttentionSpec spec;  // without tensors
  RotaryTable rotary;
  std::shared_ptr<const Forest> forest;
};

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const AttentionKept& what, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& q_norm,
                            const std::optional<at::Tensor>& k_norm) {
    const at::Tensor qn = q_norm.value_or(at::Tensor()), kn = k_norm.value_or(at::Tensor());
    const AttentionSpec& spec = what.spec;
    const Forest& forest = *what.forest;
    at::Tensor out = at::empty_like(q), lse = at::empty({q.size(0), spec.num_heads}, q.options());
    dispatch(q, [&](auto zero) {
      using T = decltype(zero);
      const at::Tensor rq = prepare<T>(spec, what.rotary, forest.position, spec.num_heads, q, qn);
      const at::Tensor rk = prepare_keys<T>(spec, what.rotary, forest.position, k, kn),
                       rv = prepare_values<T>(spec, v);
      kernels::attention<T>(shape_of(spec), view(forest), values<T>(rq), values<T>(rk),
                            values<T>(rv), out.mutable_data_ptr<T>(), lse.mutable_data_ptr<T>());
    });
    ctx->save_for_backward({q, k, v, qn, kn, out, lse});
    keep(ctx, what);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& [q, k, v, qn, kn, out, lse] =
        std::tie(saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]);
    const AttentionKept& what = kept<AttentionKept>(ctx);
    const AttentionSpec& spec = what.spec;
    const Forest& forest = *what.forest;
    const at::Tensor dout = douts[0].contiguous();
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    at::Tensor dqn = qn.defined() ? at::zeros_like(qn) : at::Tensor(),
               dkn = kn.defined() ? at::zeros_like(kn) : at::Tensor();
    dispatch(q, [&](auto zero) {
      using T = decltype(zero);
      const at::Tensor rq = prepare<T>(spec, what.rotary, forest.position, spec.num_heads, q, qn);
      const at::Tensor rk = prepare_keys<T>(spec, what.rotary, forest.position, k, kn),
                       rv = prepare_values<T>(spec, v);
      kernels::attention_backward<T>(shape_of(spec), view(forest), values<T>(rq), values<T>(rk),
                                     values<T>(rv), values<T>(out), values<T>(lse), values<T>(dout),
                                     dq.mutable_data_ptr<T>(), dk.mutable_data_ptr<T>(),
                                     dv.mutable_data_ptr<T>());
      dq = prepare_backward<T>(spec, what.rotary, forest.position, spec.num_heads, q, qn, dq, dqn);
      dk = prepare_backward<T>(spec, what.rotary, forest.position, spec.num_kv_heads, k, kn, dk,
                               dkn);
    });
    return {at::Tensor(), dq, dk, dv, dqn, dkn};
  }
};

}  // namespace

at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::shared_ptr<const Forest>& forest, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v) {
  AttentionKept what{spec, rotary, forest};
  what.spec.q_norm = what.spec.k_norm = at::Tensor();
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
  };
  return AttentionFunction::apply(what, q, k, v, optional(spec.q_norm), optional(spec.k_norm));
}

at::Tensor attention_cached(const AttentionSpec& spec, const RotaryTable& rotary,
                            const CachedRows& rows, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) {
  const int64_t n = q.size(0);
  const at::Tensor rq =
      prepare<float>(spec, rotary, *rows.position, spec.num_heads, q, spec.q_norm);
  const at::Tensor rk = prepare_keys<float>(spec, rotary, *rows.position, k, spec.k_norm),
                   rv = prepare_values<float>(spec, v);
  std::vector<kernels::CachedQuery> queries(static_cast<size_t>(n));
  for (size_t i = 0; i < queries.size(); ++i) queries[i] = {rows.pages[i], (*rows.position)[i]};
  at::Tensor out = at::empty_like(q);
  kernels::write_pages(shape_of(spec), n, queries.data(), values<float>(rk), values<float>(rv));
  kernels::attention_cached(shape_of(spec), n, queries.data(), values<float>(rq),
                            out.mutable_data_ptr<float>());
  return out;
}

int64_t page_tokens() { return kernels::page_tokens(); }
int64_t page_bytes(const AttentionSpec& spec) { return kernels::page_bytes(shape_of(spec)); }

}  // namespace temper::ops
