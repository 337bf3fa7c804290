#include "temper/ops/logits/row_distance.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {

void check_shapes(const at::Tensor& a, const at::Tensor& b) {
  check(a.dim() == 2 && a.sizes() == b.sizes(), "distance of rows: ", a.sizes(), " and ",
        b.sizes());
}

}  // namespace

at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  const at::Tensor x = a.contiguous(), y = b.detach().contiguous();
  Recording call({x});
  call.reads({x, y});
  return call.output(backend_of(x).cosine_distance(x, y), [=](const Gradients& d) -> Tensors {
    return {backend_of(x).cosine_distance_backward(x, y, d[0])};
  });
}

at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) {
  check_shapes(a, b);
  const at::Tensor x = a.contiguous(), y = b.detach().contiguous();
  Recording call({x});
  call.reads({x, y});
  return call.output(backend_of(x).squared_distance(x, y), [=](const Gradients& d) -> Tensors {
    return {(x - y).mul_(2 * d[0].unsqueeze(1))};
  });
}

at::Tensor pool_features(const at::Tensor& x, int64_t width) {
  const int64_t in = x.size(1);
  check(width > 0 && width <= in, "pooling ", in, " features to ", width);
  if (width == in) return x;
  return backend_of(x).pool_features(x.contiguous(), width);
}

}  // namespace temper::ops
