// Updates of one tensor: the formulas of temper/ops/native/kernels/rows-inl.h in the same order.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace {

// ATen refuses factors beyond float32's largest number. The native kernels make infinite weights of
// them, which the trainer then names.
double factor(double x) {
  return std::abs(x) > std::numeric_limits<float>::max()
             ? std::copysign(std::numeric_limits<double>::infinity(), x)
             : x;
}

}  // namespace

void AtenBackend::adamw(const AdamWStep& s, const at::Tensor& grad, const at::Tensor& value,
                        const at::Tensor& first, const at::Tensor& second) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor g = grad * s.grad_scale;
  first.add_(g - first, 1.0 - s.beta1);
  second.mul_(s.beta2).addcmul_(g, g, 1.0 - s.beta2);
  const at::Tensor root = second.sqrt().div_(std::sqrt(s.correction2)).add_(s.eps);
  value.mul_(factor(1.0 - s.learning_rate * s.weight_decay))
      .addcdiv_(first, root, factor(-s.learning_rate / s.correction1));
}

void AtenBackend::sgd(const SgdStep& s, const at::Tensor& grad, const at::Tensor& value,
                      const at::Tensor& buffer) const {
  const aten_impl::BelowAutograd below;
  at::Tensor moving = (grad * s.grad_scale).add_(value, s.weight_decay);
  if (buffer.defined()) {
    if (!s.first_step) moving.add_(buffer, s.momentum);
    buffer.copy_(moving);
  }
  value.add_(moving, factor(-s.learning_rate));
}

double AtenBackend::sum_of_squares(at::TensorList tensors) const {
  if (tensors.empty()) return 0;
  const aten_impl::BelowAutograd below;
  at::Tensor sum = at::zeros({}, tensors[0].options().dtype(at::kDouble));
  // Converted to double at once.
  const int64_t most = aten_impl::scratch_numbers(tensors[0].device()) / 2;
  for (const at::Tensor& x : tensors) {
    const at::Tensor all = x.reshape({-1});
    for (int64_t first = 0; first < all.numel(); first += most)
      sum.add_(
          all.narrow(0, first, std::min(most, all.numel() - first)).to(at::kDouble).square().sum());
  }
  return sum.item<double>();
}

}  // namespace temper::ops
