#include "temper/ops/layers/attention.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// As of any score, p (dp - Σ_j p_j dp_j): a sink's probability p is exp(sink - lse), its dp is 0,
// as its key has no value, and the sum is dout · out.
at::Tensor gradient_of_sinks(const at::Tensor& sinks, const AttentionResult& result,
                             const at::Tensor& dout) {
  const int64_t rows = dout.size(0), heads = sinks.size(0);
  const at::Tensor delta = sum_in_rows((dout * result.out).view({rows, heads, -1}));
  const at::NoGradGuard no_grad;
  return sum_of_rows(ops::exp(sinks - result.log_sum_exp).mul_(delta)).neg_();
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
                            const std::optional<at::Tensor>& k_norm,
                            const std::optional<at::Tensor>& sinks) {
    AttentionSpec spec = what.spec;
    spec.q_norm = q_norm.value_or(at::Tensor());
    spec.k_norm = k_norm.value_or(at::Tensor());
    spec.sinks = sinks.value_or(at::Tensor());
    const AttentionResult result =
        backend_of(q).attention(spec, what.rotary, *what.forest, q, k, v);
    ctx->save_for_backward(
        {q, k, v, spec.q_norm, spec.k_norm, result.out, result.log_sum_exp, spec.sinks});
    keep(ctx, what);
    return result.out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const AttentionKept& what = kept<AttentionKept>(ctx);
    AttentionSpec spec = what.spec;
    spec.q_norm = saved[3];
    spec.k_norm = saved[4];
    spec.sinks = saved[7];
    const AttentionResult result{saved[5], saved[6]};
    const at::Tensor dout = douts[0].contiguous();
    const AttentionGradients d =
        backend_of(q).attention_backward(spec, what.rotary, *what.forest, q, k, v, result, dout);
    at::Tensor dsinks;
    if (spec.sinks.defined()) dsinks = gradient_of_sinks(spec.sinks, result, dout);
    return {at::Tensor(), d.q, d.k, d.v, d.q_norm, d.k_norm, dsinks};
  }
};

}  // namespace

at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::shared_ptr<const Forest>& forest, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v) {
  AttentionKept what{spec, rotary, forest};
  what.spec.q_norm = what.spec.k_norm = what.spec.sinks = at::Tensor();
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
  };
  return AttentionFunction::apply(what, q, k, v, optional(spec.q_norm), optional(spec.k_norm),
                                  optional(spec.sinks));
}

}  // namespace temper::ops
