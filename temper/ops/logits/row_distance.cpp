#include "temper/ops/logits/row_distance.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct CosineFunction : Function<CosineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return backend_of(a).cosine_distance(a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &a = saved[0], &b = saved[1];
    return {backend_of(a).cosine_distance_backward(a, b, douts[0].contiguous()), at::Tensor()};
  }
};

struct SquaredFunction : Function<SquaredFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return backend_of(a).squared_distance(a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    return {(saved[0] - saved[1]).mul_(2 * douts[0].unsqueeze(1)), at::Tensor()};
  }
};

void check_shapes(const at::Tensor& a, const at::Tensor& b) {
  check(a.dim() == 2 && a.sizes() == b.sizes(), "distance of rows: ", a.sizes(), " and ",
        b.sizes());
}

}  // namespace

at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  return CosineFunction::apply(a.contiguous(), b.detach().contiguous());
}

at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  return SquaredFunction::apply(a.contiguous(), b.detach().contiguous());
}

at::Tensor pool_features(const at::Tensor& x, int64_t width) {
  const int64_t in = x.size(1);
  check(width > 0 && width <= in, "pooling ", in, " features to ", width);
  if (width == in) return x;
  return backend_of(x).pool_features(x.contiguous(), width);
}

}  // namespace temper::ops
