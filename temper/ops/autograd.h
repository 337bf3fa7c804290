// Helpers of the differentiable functions.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "temper/ops/tensor_data.h"

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

}  // namespace temper::ops
