#include "temper/ops/attention.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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
    AttentionSpec spec = what.spec;
    spec.q_norm = q_norm.value_or(at::Tensor());
    spec.k_norm = k_norm.value_or(at::Tensor());
    const AttentionResult result =
        backend_of(q).attention(spec, what.rotary, *what.forest, q, k, v);
    ctx->save_for_backward({q, k, v, spec.q_norm, spec.k_norm, result.out, result.log_sum_exp});
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
    const AttentionGradients d = backend_of(q).attention_backward(
        spec, what.rotary, *what.forest, q, k, v, {saved[5], saved[6]}, douts[0].contiguous());
    return {at::Tensor(), d.q, d.k, d.v, d.q_norm, d.k_norm};
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

}  // namespace temper::ops
