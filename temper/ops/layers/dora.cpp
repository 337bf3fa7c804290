#include "temper/ops/layers/dora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kRowsAtOnce = 128;  // rows of W + scale B A in memory at once

// Tensors: x, magnitude, norm and, where there is one, the bias.
struct ScaleFeaturesFunction : Function<ScaleFeaturesFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors) {
    const at::Tensor &x = tensors[0], &magnitude = tensors[1], &norm = tensors[2];
    const at::Tensor bias = tensors.size() > 3 ? tensors[3] : at::Tensor();
    const at::Tensor y = backend_of(x).scale_columns(x, feature_scale(magnitude, norm), bias);
    ctx->save_for_backward({x, magnitude, norm});
    ctx->saved_data["inputs"] = static_cast<int64_t>(tensors.size());
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &magnitude = saved[1], &norm = saved[2];
    const at::Tensor dy = douts[0].contiguous();
    const Backend& backend = backend_of(dy);
    variable_list grads(static_cast<size_t>(ctx->saved_data["inputs"].toInt()));
    if (ctx->needs_input_grad(0)) grads[0] = dy * feature_scale(magnitude, norm);
    if (ctx->needs_input_grad(1)) grads[1] = feature_scale(backend.column_sums(dy, x), norm);
    if (grads.size() > 3 && ctx->needs_input_grad(3)) grads[3] = backend.column_sums(dy, {});
    return grads;
  }
};

}  // namespace

at::Tensor adapted_row_norms(const RowsOf& weight, const at::Tensor& a, const at::Tensor& b,
                             double scale) {
  const at::NoGradGuard no_grad;
  const int64_t out = b.size(0), in = a.size(1);
  const at::Tensor norms = at::empty({out}, a.options()), panels = pack(Operand{a});
  for (int64_t first = 0; first < out; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, out - first);
    const at::Tensor w = weight(first, count).contiguous(), low = b.narrow(0, first, count);
    check(w.size(1) == in && w.scalar_type() == a.scalar_type(), "row norms: weight ", w.sizes(),
          " and an adapter of inputs of ", in);
    at::Tensor sum = at::empty_like(w);
    product({low}, {a}, sum, false, {}, panels);
    const Backend& backend = backend_of(a);
    norms.narrow(0, first, count).copy_(backend.row_norms(backend.add_scaled(w, sum, scale)));
  }
  return norms;
}

at::Tensor feature_scale(const at::Tensor& magnitude, const at::Tensor& norm) {
  return (magnitude.detach() / norm).masked_fill_(norm == 0, 0);
}

at::Tensor scale_features(const at::Tensor& x, const at::Tensor& magnitude, const at::Tensor& norm,
                          const at::Tensor& bias) {
  check(x.dim() == 2 && x.is_contiguous() && magnitude.numel() == x.size(1) &&
            norm.numel() == x.size(1),
        "scale_features: ", x.sizes(), " by ", magnitude.sizes(), " and ", norm.sizes());
  variable_list tensors{x, magnitude, norm};
  if (bias.defined()) tensors.push_back(bias);
  return ScaleFeaturesFunction::apply(at::TensorList(tensors));
}

}  // namespace temper::ops
