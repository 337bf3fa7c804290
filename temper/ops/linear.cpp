#include "temper/ops/linear.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/product.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using kernels::row_kernels;

kernels::Gate gate(Activation a) { return static_cast<kernels::Gate>(a); }

at::Tensor input_values(const LinearInput& in) {
  if (in.kind == LinearInput::Kind::kPlain) return in.x.contiguous();
  at::Tensor h = at::empty_like(in.x, at::MemoryFormat::Contiguous);
  dispatch(in.x, [&](auto zero) {
    using T = decltype(zero);
    if (in.kind == LinearInput::Kind::kRmsNorm)
      row_kernels<T>().rms_norm(in.x.numel() / in.x.size(-1), in.x.size(-1), values<T>(in.x), values<T>(in.other), in.eps,
                                in.one_plus, h.mutable_data_ptr<T>());
    else
      row_kernels<T>().gated(h.numel(), gate(in.activation), values<T>(in.x), values<T>(in.other), h.mutable_data_ptr<T>());
  });
  return h;
}

// Gradients of (x, other) from the gradient of the input's values.
std::pair<at::Tensor, at::Tensor> input_gradients(const LinearInput& in, at::Tensor dh, bool other_needed) {
  if (in.kind == LinearInput::Kind::kPlain) return {dh, {}};
  at::Tensor dx, dother;
  dispatch(in.x, [&](auto zero) {
    using T = decltype(zero);
    if (in.kind == LinearInput::Kind::kRmsNorm) {
      dx = at::zeros_like(in.x);
      if (other_needed) dother = at::zeros_like(in.other);
      row_kernels<T>().rms_norm_backward(in.x.numel() / in.x.size(-1), in.x.size(-1), values<T>(in.x), values<T>(in.other),
                                         in.eps, in.one_plus, values<T>(dh), dx.mutable_data_ptr<T>(),
                                         other_needed ? dother.mutable_data_ptr<T>() : nullptr);
    } else {
      dx = at::empty_like(in.x);
      dother = at::empty_like(in.x);
      row_kernels<T>().gated_backward(dx.numel(), gate(in.activation), values<T>(in.x), values<T>(in.other), values<T>(dh),
                                      dx.mutable_data_ptr<T>(), dother.mutable_data_ptr<T>());
    }
  });
  return {dx, dother};
}

// Tensors: x, other, then weight and bias of each operand (undefined where there is none).
struct LinearFunction : Function<LinearFunction> {
  static variable_list forward(AutogradContext* ctx, const LinearInput& input, at::TensorList tensors,
                               const variable_list& panels) {
    LinearInput in = input;
    in.x = tensors[0];
    in.other = tensors[1];
    const at::Tensor h = input_values(in);
    variable_list outputs, saved{in.x, in.other};
    for (size_t i = 2; i < tensors.size(); i += 2) {
      const at::Tensor& weight = tensors[i];
      at::Tensor y = at::empty({h.size(0), weight.size(0)}, h.options());
      product({h}, {weight, true}, y, false, tensors[i + 1], panels[i / 2 - 1]);
      outputs.push_back(y);
      saved.push_back(weight);
    }
    ctx->save_for_backward(saved);
    ctx->set_materialize_grads(false);
    in.x = in.other = at::Tensor();
    keep(ctx, std::move(in));
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    LinearInput in = kept<LinearInput>(ctx);
    in.x = saved[0];
    in.other = saved[1];
    const size_t num = saved.size() - 2;
    const bool x_needed = ctx->needs_input_grad(0), other_needed = ctx->needs_input_grad(1);
    const auto weight_needed = [ctx](size_t i) { return ctx->needs_input_grad(2 + 2 * i); };
    variable_list grads(2 + 2 * num);
    at::Tensor h, dh;  // the input's values, computed again if a weight asks for them, and their gradient
    for (size_t i = 0; i < num; ++i) {
      if (!douts[i].defined()) continue;
      const at::Tensor dy = douts[i].contiguous();
      const at::Tensor& weight = saved[2 + i];
      if (x_needed || other_needed) {
        const bool first = !dh.defined();
        if (first) dh = at::empty({dy.size(0), weight.size(1)}, dy.options());
        product({dy}, {weight}, dh, !first);
      }
      if (weight_needed(i)) {
        if (!h.defined()) h = input_values(in);
        grads[2 + 2 * i] = at::empty_like(weight);
        product({dy, true}, {h}, grads[2 + 2 * i]);
      }
      if (ctx->needs_input_grad(3 + 2 * i)) grads[3 + 2 * i] = dy.sum(0);
    }
    if (dh.defined()) std::tie(grads[0], grads[1]) = input_gradients(in, dh, other_needed);
    if (!x_needed) grads[0] = at::Tensor();
    grads.insert(grads.begin(), at::Tensor());  // the options
    grads.emplace_back();                       // the panels
    return grads;
  }
};

struct MaterializeFunction : Function<MaterializeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const LinearInput& input, const at::Tensor& x, const at::Tensor& other) {
    LinearInput in = input;
    in.x = x;
    in.other = other;
    ctx->save_for_backward({x, other});
    at::Tensor h = input_values(in);
    in.x = in.other = at::Tensor();
    keep(ctx, std::move(in));
    return h;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    LinearInput in = kept<LinearInput>(ctx);
    in.x = saved[0];
    in.other = saved[1];
    auto [dx, dother] = input_gradients(in, douts[0].contiguous(), ctx->needs_input_grad(1));
    return {at::Tensor(), dx, dother};
  }
};

struct AddScaledFunction : Function<AddScaledFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b, double scale) {
    ctx->saved_data["scale"] = scale;
    at::Tensor y = at::empty_like(a);
    dispatch(a, [&](auto zero) {
      using T = decltype(zero);
      row_kernels<T>().add_scaled(a.numel(), values<T>(a), static_cast<T>(scale), values<T>(b), y.mutable_data_ptr<T>());
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const double scale = ctx->saved_data["scale"].toDouble();
    return {douts[0], scale == 1.0 ? douts[0] : douts[0] * scale, at::Tensor()};
  }
};

}  // namespace

LinearInput LinearInput::plain(at::Tensor x) { return {.kind = Kind::kPlain, .x = std::move(x), .other = {}}; }
LinearInput LinearInput::rms_norm(at::Tensor x, at::Tensor weight, double eps, bool one_plus) {
  return {.kind = Kind::kRmsNorm, .x = std::move(x), .other = std::move(weight), .eps = eps, .one_plus = one_plus};
}
LinearInput LinearInput::gated(at::Tensor gate, at::Tensor up, Activation activation) {
  return {.kind = Kind::kGated, .x = std::move(gate), .other = std::move(up), .activation = activation};
}

std::vector<at::Tensor> linear(const LinearInput& input, const std::vector<LinearOperand>& operands) {
  variable_list tensors{input.x, input.other}, panels;
  for (const LinearOperand& operand : operands) {
    check(operand.weight.dim() == 2 && operand.weight.size(1) == input.x.size(-1), "linear: weight ", operand.weight.sizes(),
          " does not take an input of width ", input.x.size(-1));
    tensors.push_back(operand.weight);
    tensors.push_back(operand.bias);
    panels.push_back(operand.panels);
  }
  LinearInput options = input;
  options.x = options.other = at::Tensor();
  return LinearFunction::apply(options, at::TensorList(tensors), panels);
}

at::Tensor pack_weight(const at::Tensor& weight) { return pack({weight, true}); }

at::Tensor materialize(const LinearInput& input) {
  if (input.kind == LinearInput::Kind::kPlain) return input.x;
  LinearInput options = input;
  options.x = options.other = at::Tensor();
  return MaterializeFunction::apply(options, input.x, input.other);
}

at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) {
  check(a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous(), "add: shapes ", a.sizes(), " and ", b.sizes());
  return AddScaledFunction::apply(a, b, scale);
}

}  // namespace temper::ops
