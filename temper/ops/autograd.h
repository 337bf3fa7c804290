// What the differentiable functions share.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "temper/base/error.h"
#include "temper/ops/cpu/gemm.h"

namespace temper::ops {

// Any value that a backward pass needs besides tensors, carried by an autograd context.
template <class T>
struct Kept : torch::CustomClassHolder {
  explicit Kept(T v) : value(std::move(v)) {}
  T value;
};
template <class T>
void keep(torch::autograd::AutogradContext* ctx, T value) {
  ctx->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
template <class T>
const T& kept(torch::autograd::AutogradContext* ctx) {
  return static_cast<const Kept<T>*>(ctx->saved_data["kept"].toCapsule().get())->value;
}

// Runs body(float{}) or body(double{}), whichever the tensor holds.
template <class Body>
auto dispatch(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kDouble) return body(double{});
  check(x.scalar_type() == at::kFloat, "expected a float32 or float64 tensor, found ",
        x.scalar_type());
  return body(float{});
}

inline bool needs_grad(const at::Tensor& x) { return x.defined() && x.requires_grad(); }

// Values that do not take part in a gradient, such as another tensor's numbers.
template <class T>
const T* values(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}
inline const kernels::BFloat16Bits* bfloat16_bits(const at::Tensor& x) {
  return reinterpret_cast<const kernels::BFloat16Bits*>(x.const_data_ptr<at::BFloat16>());
}

}  // namespace temper::ops
