#include "temper/ops/layers/recurrent.h"

#include <ATen/ATen.h>

#include <optional>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/native/kernels/recurrent/recurrent.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

std::optional<at::Tensor> optional_tensor(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

struct ConvolutionKept {
  bool silu;
  std::shared_ptr<const Forest> forest;
};

struct ConvolutionFunction : Function<ConvolutionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const ConvolutionKept& what, const at::Tensor& x,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    const ConvolutionWeights weights{weight, bias.value_or(at::Tensor())};
    ctx->save_for_backward({x, weight, weights.bias});
    keep(ctx, what);
    return backend_of(x).short_convolution(weights, what.silu, *what.forest, x, {});
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const ConvolutionKept& what = kept<ConvolutionKept>(ctx);
    const auto [dx, d] = backend_of(saved[0]).short_convolution_backward(
        {saved[1], saved[2]}, what.silu, *what.forest, saved[0], douts[0].contiguous());
    return {at::Tensor(), dx, d.weight, d.bias};
  }
};

struct DeltaRuleKept {
  DeltaRuleSpec spec;
  std::shared_ptr<const Forest> forest;
};

struct DeltaRuleFunction : Function<DeltaRuleFunction> {
  static at::Tensor forward(AutogradContext* ctx, const DeltaRuleKept& what, const at::Tensor& qkv,
                            const at::Tensor& a, const at::Tensor& b, const at::Tensor& a_log,
                            const at::Tensor& dt_bias) {
    ctx->save_for_backward({qkv, a, b, a_log, dt_bias});
    keep(ctx, what);
    return backend_of(qkv).gated_delta_rule(what.spec, *what.forest, {qkv, a, b, a_log, dt_bias},
                                            {});
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const DeltaRuleKept& what = kept<DeltaRuleKept>(ctx);
    const DeltaRuleInputs d = backend_of(saved[0]).gated_delta_rule_backward(
        what.spec, *what.forest, {saved[0], saved[1], saved[2], saved[3], saved[4]},
        douts[0].contiguous());
    return {at::Tensor(), d.qkv, d.a, d.b, d.a_log, d.dt_bias};
  }
};

void check_rows(const char* what, const Forest& forest, const at::Tensor& x, int64_t width) {
  check(x.dim() == 2 && x.size(0) == forest.num_tokens() && x.size(1) == width && x.is_contiguous(),
        what, ": found a tensor of shape ", x.sizes(), ", expected [", forest.num_tokens(), ", ",
        width, "]");
}

}  // namespace

int64_t most_convolution_taps() { return kernels::kMostTaps; }

at::Tensor short_convolution(const ConvolutionWeights& weights, bool silu,
                             const std::shared_ptr<const Forest>& forest, const at::Tensor& x,
                             const CarriedStates& carried) {
  check_rows("short convolution", *forest, x, weights.weight.size(0));
  check(weights.weight.size(-1) <= kernels::kMostTaps,
        "short convolution: ", weights.weight.size(-1), " taps, expected at most ",
        kernels::kMostTaps);
  if (!at::GradMode::is_enabled() || !carried.empty())
    return backend_of(x).short_convolution(weights, silu, *forest, x, carried);
  return ConvolutionFunction::apply(ConvolutionKept{silu, forest}, x, weights.weight,
                                    optional_tensor(weights.bias));
}

at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const std::shared_ptr<const Forest>& forest,
                            const DeltaRuleInputs& in, const CarriedStates& carried) {
  check_rows("gated delta rule", *forest, in.qkv, spec.qkv_width());
  check_rows("gated delta rule", *forest, in.a, spec.value_heads);
  check_rows("gated delta rule", *forest, in.b, spec.value_heads);
  if (!at::GradMode::is_enabled() || !carried.empty())
    return backend_of(in.qkv).gated_delta_rule(spec, *forest, in, carried);
  return DeltaRuleFunction::apply(DeltaRuleKept{spec, forest}, in.qkv, in.a, in.b, in.a_log,
                                  in.dt_bias);
}

}  // namespace temper::ops
