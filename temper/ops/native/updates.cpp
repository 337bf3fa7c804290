// The native backend itself, and updates of parameters on temper/ops/native/kernels/rows.h.
#include <ATen/ATen.h>

#include "temper/ops/native/kernels/rows.h"
#include "temper/ops/native/native.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {

void NativeBackend::adamw(const AdamWStep& step, const at::Tensor& grad, const at::Tensor& value,
                          const at::Tensor& first, const at::Tensor& second) const {
  kernels::adamw(grad.numel(), step, values<float>(grad), static_cast<float*>(value.data_ptr()),
                 first.mutable_data_ptr<float>(), second.mutable_data_ptr<float>());
}

void NativeBackend::sgd(const SgdStep& step, const at::Tensor& grad, const at::Tensor& value,
                        const at::Tensor& buffer) const {
  kernels::sgd(grad.numel(), step.learning_rate, step.momentum, step.weight_decay, step.grad_scale,
               step.first_step, values<float>(grad), static_cast<float*>(value.data_ptr()),
               buffer.defined() ? buffer.mutable_data_ptr<float>() : nullptr);
}

double NativeBackend::sum_of_squares(at::TensorList tensors) const {
  double sum = 0;
  for (const at::Tensor& x : tensors) sum += kernels::sum_of_squares(x.numel(), values<float>(x));
  return sum;
}

const Backend& native_backend() {
  static const NativeBackend backend;
  return backend;
}

}  // namespace temper::ops
