#include "temper/ops/layers/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

// Gradients of (x, other) from the gradient of the input's values.
std::pair<at::Tensor, at::Tensor> input_gradients(const LinearInput& in, const at::Tensor& dh,
                                                  bool other_needed) {
  const Backend& backend = backend_of(in.x);
  switch (in.kind) {
    case LinearInput::Kind::kPlain:
      return {dh, {}};
    case LinearInput::Kind::kRmsNorm: {
      at::Tensor dweight = other_needed ? at::zeros_like(in.other) : at::Tensor();
      const at::Tensor dx =
          backend.rms_norm_backward(in.x, in.other, in.eps, in.add_unit_offset, dh, dweight);
      return {dx, dweight};
    }
    case LinearInput::Kind::kLayerNorm: {
      at::Tensor dweight = other_needed ? at::zeros_like(in.other) : at::Tensor();
      const at::Tensor dx =
          backend.rms_norm_backward(backend.center(in.x), in.other, in.eps, false, dh, dweight);
      return {backend.center(dx), dweight};
    }
    case LinearInput::Kind::kGated:
      return backend.gated_backward(in.activation, in.x, in.other, dh);
  }
  return {};
}

// The arguments of a call of `linear` except its tensors, and which of the optional tensors there
// are.
struct LinearKept {
  LinearInput input;  // without its tensors
  bool has_other = false;
  std::vector<bool> has_bias;
  std::vector<Weight> weights;  // without their values
  std::vector<RowRange> rows;

  size_t weight(size_t i) const {
    size_t place = has_other ? 2 : 1;
    for (size_t j = 0; j < i; ++j) place += has_bias[j] ? 2 : 1;
    return place;
  }
  Weight weight_of(at::TensorList tensors, size_t i) const {
    Weight w = weights[i];
    if (!w.quantized) w.values = tensors[weight(i)];
    return w;
  }
  LinearInput input_of(at::TensorList tensors) const {
    LinearInput in = input;
    in.x = tensors[0];
    if (has_other) in.other = tensors[1];
    return in;
  }
};

variable_list products(const LinearInput& input, const std::vector<LinearOperand>& operands) {
  const at::Tensor h = input_values(input);
  variable_list outputs;
  for (const LinearOperand& operand : operands) {
    const at::Tensor own = operand.rows.of(h);
    at::Tensor y = at::empty({own.size(0), operand.weight.out()}, h.options());
    multiply(own, operand.weight, y, operand.bias);
    outputs.push_back(y);
  }
  return outputs;
}

// Tensors: x, other, then weight and bias of each operand.
struct LinearFunction : Function<LinearFunction> {
  static variable_list forward(AutogradContext* ctx, LinearKept what, at::TensorList tensors) {
    std::vector<LinearOperand> operands;
    for (size_t i = 0; i < what.has_bias.size(); ++i)
      operands.push_back({what.weight_of(tensors, i),
                          what.has_bias[i] ? tensors[what.weight(i) + 1] : at::Tensor(),
                          what.rows[i]});
    variable_list outputs = products(what.input_of(tensors), operands);
    for (Weight& weight : what.weights) weight.panels.reset();  // not for the backward pass
    ctx->save_for_backward(tensors.vec());
    ctx->set_materialize_grads(false);
    keep(ctx, std::move(what));
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const LinearKept& what = kept<LinearKept>(ctx);
    const LinearInput in = what.input_of(saved);
    const bool x_needed = ctx->needs_input_grad(0),
               other_needed = what.has_other && ctx->needs_input_grad(1);
    variable_list grads(saved.size());
    const int64_t n = in.x.size(0);
    // The input's values, computed again and packed once for weights of the same rows that ask for
    // them; their gradient.
    at::Tensor h, h_panels, dh;
    RowRange packed;
    for (size_t i = 0; i < douts.size(); ++i) {
      if (!douts[i].defined()) continue;
      const at::Tensor dy = douts[i].contiguous();
      const size_t place = what.weight(i);
      const Weight weight = what.weight_of(saved, i);
      const RowRange rows = what.rows[i];
      if (x_needed || other_needed) {
        const bool sets = !dh.defined() && rows.is_all(n);
        if (sets)
          dh = at::empty({n, weight.in()}, dy.options());
        else if (!dh.defined())
          dh = at::zeros({n, weight.in()}, dy.options());
        at::Tensor to = rows.of(dh);
        multiply_transposed(dy, weight, to, !sets);
      }
      if (ctx->needs_input_grad(place)) {
        if (!h.defined()) h = input_values(in);
        const at::Tensor own = rows.of(h);
        if (!h_panels.defined() || rows != packed) h_panels = pack_input(weight, own);
        packed = rows;
        grads[place] = at::empty_like(weight.values);
        weight_gradient(weight, dy, own, grads[place], false, h_panels);
      }
      if (what.has_bias[i] && ctx->needs_input_grad(place + 1)) grads[place + 1] = sum_of_rows(dy);
    }
    if (dh.defined()) {
      if (in.ranks) in.ranks->all_reduce_sum(dh);
      auto [dx, dother] = input_gradients(in, dh, other_needed);
      if (x_needed) grads[0] = dx;
      if (other_needed) grads[1] = dother;
    }
    grads.insert(grads.begin(), at::Tensor());  // for the kept arguments
    return grads;
  }
};

struct MaterializeFunction : Function<MaterializeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const LinearInput& input, const at::Tensor& x,
                            const std::optional<at::Tensor>& other) {
    LinearInput in = input;
    in.x = x;
    in.other = other.value_or(at::Tensor());
    ctx->save_for_backward({x, in.other});
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
    at::Tensor dh = douts[0].contiguous();
    if (in.ranks) {
      dh = dh.clone();
      in.ranks->all_reduce_sum(dh);
    }
    auto [dx, dother] = input_gradients(in, dh, in.other.defined() && ctx->needs_input_grad(1));
    return {at::Tensor(), dx, dother};
  }
};

struct SumOverFunction : Function<SumOverFunction> {
  static at::Tensor forward(AutogradContext*, const std::shared_ptr<Ranks>& ranks,
                            const at::Tensor& x) {
    at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
    ranks->all_reduce_sum(sum);
    return sum;
  }
  static variable_list backward(AutogradContext*, variable_list douts) {
    return {at::Tensor(), douts[0]};
  }
};

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
  variable_list tensors{input.x};
  LinearKept what{input, input.other.defined(), {}, {}, {}};
  what.input.x = what.input.other = at::Tensor();
  if (what.has_other) tensors.push_back(input.other);
  for (const LinearOperand& operand : operands) {
    tensors.push_back(operand.weight.tensor());
    what.has_bias.push_back(operand.bias.defined());
    what.weights.push_back(operand.weight);
    what.weights.back().values.reset();
    what.rows.push_back(operand.rows);
    if (operand.bias.defined()) tensors.push_back(operand.bias);
  }
  return LinearFunction::apply(std::move(what), at::TensorList(tensors));
}

at::Tensor materialize(const LinearInput& input) {
  if (input.kind == LinearInput::Kind::kPlain && !input.ranks) return input.x;
  if (!at::GradMode::is_enabled()) return input_values(input);
  LinearInput options = input;
  options.x = options.other = at::Tensor();
  const auto other = input.other.defined() ? std::optional<at::Tensor>(input.other) : std::nullopt;
  return MaterializeFunction::apply(options, input.x, other);
}

at::Tensor sum_over(const std::shared_ptr<Ranks>& ranks, const at::Tensor& x) {
  return SumOverFunction::apply(ranks, x);
}

}  // namespace temper::ops
