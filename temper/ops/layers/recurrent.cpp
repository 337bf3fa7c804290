#include "temper/ops/layers/recurrent.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/native/kernels/recurrent/recurrent.h"

namespace temper::ops {
namespace {

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
  if (!carried.empty()) return backend_of(x).short_convolution(weights, silu, *forest, x, carried);
  const Tensors inputs{x, weights.weight, weights.bias};
  Recording call(inputs);
  call.reads(inputs);
  return call.output(backend_of(x).short_convolution(weights, silu, *forest, x, {}),
                     [=](const Gradients& d) -> Tensors {
                       const auto [dx, of] = backend_of(x).short_convolution_backward(
                           weights, silu, *forest, x, d[0]);
                       return {dx, of.weight, of.bias};
                     });
}

at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const std::shared_ptr<const Forest>& forest,
                            const DeltaRuleInputs& in, const CarriedStates& carried) {
  check_rows("gated delta rule", *forest, in.qkv, spec.qkv_width());
  check_rows("gated delta rule", *forest, in.a, spec.value_heads);
  check_rows("gated delta rule", *forest, in.b, spec.value_heads);
  const Backend& backend = backend_of(in.qkv);
  if (!carried.empty()) return backend.gated_delta_rule(spec, *forest, in, carried);
  const Tensors inputs{in.qkv, in.a, in.b, in.a_log, in.dt_bias};
  Recording call(inputs);
  call.reads(inputs);
  return call.output(backend.gated_delta_rule(spec, *forest, in, {}),
                     [=](const Gradients& d) -> Tensors {
                       const DeltaRuleInputs of =
                           backend_of(in.qkv).gated_delta_rule_backward(spec, *forest, in, d[0]);
                       return {of.qkv, of.a, of.b, of.a_log, of.dt_bias};
                     });
}

}  // namespace temper::ops
