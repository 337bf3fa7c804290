#include "temper/ops/layers/dora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/bias_gradient.h"

namespace temper::ops {
namespace {
constexpr int64_t kRowsAtOnce = 128;  // rows of W + scale B A in memory at once

// That of input 1 of the call, Σ_rows dy x / norm.
void give_magnitude_gradient(const Gradients& d, const at::Tensor& x, const at::Tensor& norm,
                             Tensors& grads) {
  const Backend& backend = backend_of(x);
  RowSum* const sum = d.row_sum(1);
  if (!sum) {
    grads[1] = feature_scale(backend.column_sums(d[0], x), norm);
    return;
  }
  // The chain over rows goes on from a first one, of what it has come to times 1.
  sum->sum = sum->sum.defined()
                 ? backend.column_sums(at::cat({sum->sum.unsqueeze(0), d[0]}),
                                       at::cat({at::ones({1, x.size(1)}, x.options()), x}))
                 : backend.column_sums(d[0], x);
  sum->finish = [norm](const at::Tensor& rows) { return feature_scale(rows, norm); };
}

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
  Recording call({x, magnitude, bias});
  call.reads({x, magnitude, norm});
  return call.output(backend_of(x).scale_columns(x, feature_scale(magnitude, norm), bias),
                     [=](const Gradients& d) {
                       Tensors grads(3);
                       if (d.wanted(0)) grads[0] = d[0] * feature_scale(magnitude, norm);
                       if (d.wanted(1)) give_magnitude_gradient(d, x, norm, grads);
                       if (d.wanted(2)) give_bias_gradient(d, 2, d[0], grads);
                       return grads;
                     });
}

}  // namespace temper::ops
