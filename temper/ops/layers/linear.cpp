#include "temper/ops/layers/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <tuple>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/bias_gradient.h"
#include "temper/ops/rounding.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {

at::Tensor input_values(const LinearInput& in) {
  const Backend& backend = backend_of(in.x);
  switch (in.kind) {
    case LinearInput::Kind::kPlain:
      return in.x.contiguous();
    case LinearInput::Kind::kRmsNorm:
      return backend.rms_norm(in.x, in.other, in.eps, in.add_unit_offset);
    case LinearInput::Kind::kLayerNorm:
      return backend.rms_norm(backend.center(in.x), in.other, in.eps, false);
    case LinearInput::Kind::kGated:
      return backend.gated(in.activation, in.x, in.other);
  }
  return {};
}

// From the gradient of the input's values, those of x and other: inputs 0 and 1 of the call.
void give_input_gradients(const LinearInput& in, const at::Tensor& dh, const Gradients& d,
                          Tensors& grads) {
  const Backend& backend = backend_of(in.x);
  // A norm's weight.
  at::Tensor none;
  at::Tensor& dweight = d.sum_place(1, grads);
  const bool is_norm =
      in.kind == LinearInput::Kind::kRmsNorm || in.kind == LinearInput::Kind::kLayerNorm;
  if (is_norm && d.wanted(1) && !dweight.defined()) dweight = at::zeros_like(in.other);
  switch (in.kind) {
    case LinearInput::Kind::kPlain:
      grads[0] = dh;
      break;
    case LinearInput::Kind::kRmsNorm:
      grads[0] = backend.rms_norm_backward(in.x, in.other, in.eps, in.add_unit_offset, dh,
                                           d.wanted(1) ? dweight : none);
      break;
    case LinearInput::Kind::kLayerNorm:
      grads[0] = backend.center(backend.rms_norm_backward(backend.center(in.x), in.other, in.eps,
                                                          false, dh, d.wanted(1) ? dweight : none));
      break;
    case LinearInput::Kind::kGated:
      std::tie(grads[0], grads[1]) = backend.gated_backward(in.activation, in.x, in.other, dh);
      break;
  }
}

Tensors products(const LinearInput& input, const std::vector<LinearOperand>& operands) {
  const at::Tensor h = input_values(input);
  const int64_t n = h.size(0);
  Tensors outputs;
  bool together = true;  // all of them of the same input
  for (const auto& [weight, bias, rows] : operands) {
    const int64_t count = rows.is_all(n) ? n : rows.end - rows.begin;
    outputs.push_back(new_tensor({count, weight.out()}, h));
    together = together && count == n && !is_ordered(weight);
  }
  if (together) {
    backend_of(h).multiply_each(h, operands, outputs);
    return outputs;
  }
  for (size_t i = 0; i < operands.size(); ++i)
    multiply(operands[i].rows.of(h), operands[i].weight, outputs[i], operands[i].bias);
  return outputs;
}

// Of the input's x and other, then weight and bias of each operand.
Tensors linear_gradients(const LinearInput& in, const std::vector<LinearOperand>& operands,
                         const Gradients& d) {
  const bool x_needed = d.wanted(0), other_needed = d.wanted(1);
  Tensors grads(2 + 2 * operands.size());
  const int64_t n = in.x.size(0);
  // The input's values, computed again and packed once for weights of the same rows and rounding
  // that ask for them; their gradient.
  at::Tensor h, h_panels, dh;
  RowRange packed;
  bool packed_rounded = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& dy = d[i];
    if (!dy.defined()) continue;
    const auto& [weight, bias, rows] = operands[i];
    const size_t place = 2 + 2 * i;
    if (x_needed || other_needed) {
      const bool sets = !dh.defined() && rows.is_all(n);
      if (sets)
        dh = at::empty({n, weight.in()}, dy.options());
      else if (!dh.defined())
        dh = at::zeros({n, weight.in()}, dy.options());
      at::Tensor to = rows.of(dh);
      multiply_transposed(dy, weight, to, !sets);
    }
    if (d.wanted(place)) {
      if (!h.defined()) h = input_values(in);
      const at::Tensor own = rows.of(h);
      const bool rounded = rounds_factors(weight);
      if (!h_panels.defined() || rows != packed || rounded != packed_rounded)
        h_panels = pack_input(weight, own);
      packed = rows;
      packed_rounded = rounded;
      at::Tensor& dw = d.sum_place(place, grads);
      const bool goes_on = dw.defined();
      if (!goes_on) dw = at::empty_like(weight.values);
      weight_gradient(weight, dy, own, dw, goes_on, h_panels);
    }
    if (d.wanted(place + 1)) give_bias_gradient(d, place + 1, dy, grads);
  }
  if (dh.defined()) {
    if (in.ranks) in.ranks->all_reduce_sum(dh);
    give_input_gradients(in, dh, d, grads);
  }
  return grads;
}

}  // namespace

LinearInput LinearInput::plain(at::Tensor x) {
  return {.kind = Kind::kPlain, .x = std::move(x), .other = {}};
}
LinearInput LinearInput::rms_norm(at::Tensor x, at::Tensor weight, double eps,
                                  bool add_unit_offset) {
  return {.kind = Kind::kRmsNorm,
          .x = std::move(x),
          .other = std::move(weight),
          .eps = eps,
          .add_unit_offset = add_unit_offset};
}
LinearInput LinearInput::layer_norm(at::Tensor x, at::Tensor weight, double eps) {
  return {.kind = Kind::kLayerNorm, .x = std::move(x), .other = std::move(weight), .eps = eps};
}
LinearInput LinearInput::gated(at::Tensor gate, at::Tensor up, Activation activation) {
  return {
      .kind = Kind::kGated, .x = std::move(gate), .other = std::move(up), .activation = activation};
}

std::vector<at::Tensor> linear(const LinearInput& input,
                               const std::vector<LinearOperand>& operands) {
  for (const auto& [weight, bias, rows] : operands) {
    check(weight.in() == input.x.size(-1), "linear: a weight of ", weight.out(), " by ",
          weight.in(), " does not take an input of width ", input.x.size(-1));
    rows.check_of(input.x.size(0));
  }
  if (!at::GradMode::is_enabled()) return products(input, operands);
  Tensors inputs{input.x, input.other};
  std::vector<LinearOperand> kept = operands;
  for (LinearOperand& operand : kept) {
    inputs.insert(inputs.end(), {operand.weight.values, operand.bias});
    operand.weight.panels.reset();  // not for the backward pass
  }
  Recording call(inputs);
  call.reads(inputs);
  return call.outputs(products(input, operands),
                      [=](const Gradients& d) { return linear_gradients(input, kept, d); });
}

at::Tensor materialize(const LinearInput& input) {
  if (input.kind == LinearInput::Kind::kPlain && !input.ranks) return input.x;
  Recording call({input.x, input.other});
  call.reads({input.x, input.other});
  return call.output(input_values(input), [=](const Gradients& d) -> Tensors {
    at::Tensor dh = d[0];
    if (input.ranks) {
      dh = dh.clone();
      input.ranks->all_reduce_sum(dh);
    }
    Tensors grads(2);
    give_input_gradients(input, dh, d, grads);
    return grads;
  });
}

at::Tensor weight_values(const Weight& w) {
  if (w.quantized) {
    const at::Tensor values = read(w);
    return w.arithmetic == Arithmetic::kAmx ? values.to(at::kBFloat16).to(at::kFloat) : values;
  }
  if (w.format == WeightFormat::kFloat32) return w.values;
  Recording call({w.values});
  return call.output(read(w), [type = w.values.scalar_type()](const Gradients& d) -> Tensors {
    return {d[0].to(type)};
  });
}

at::Tensor sum_over(const std::shared_ptr<Ranks>& ranks, const at::Tensor& x) {
  Recording call({x});
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  ranks->all_reduce_sum(sum);
  return call.output(sum, [](const Gradients& d) -> Tensors { return {d[0]}; });
}

}  // namespace temper::ops
