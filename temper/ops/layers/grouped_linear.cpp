#include "temper/ops/layers/grouped_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Layers = std::vector<std::vector<LinearOperand>>;

struct Halves {
  at::Tensor gate, up;
};
Halves halves(const at::Tensor& x, bool interleaved) {
  const int64_t width = x.size(1) / 2;
  if (!interleaved)
    return {x.narrow(1, 0, width).contiguous(), x.narrow(1, width, width).contiguous()};
  const at::Tensor pairs = x.view({-1, width, 2});
  return {pairs.select(2, 0).contiguous(), pairs.select(2, 1).contiguous()};
}

// What the activation and the product read of the halves.
Halves limited(const GatedUnit& unit, const Halves& of) {
  if (unit.limit == 0) return of;
  const Backend& backend = backend_of(of.gate);
  const double none = -std::numeric_limits<double>::infinity();
  return {backend.clamp_scaled(of.gate, none, unit.limit, 0, unit.alpha),
          backend.clamp_scaled(of.up, -unit.limit, unit.limit, 1, 1 / unit.alpha)};
}

at::Tensor gated_gradient(const GatedUnit& unit, const at::Tensor& x, const at::Tensor& dh) {
  const Halves of = halves(x, unit.interleaved), read = limited(unit, of);
  auto [dgate, dup] = backend_of(x).gated_backward(unit.activation, read.gate, read.up, dh);
  if (unit.limit > 0) {
    dgate.mul_(unit.alpha).masked_fill_(of.gate.gt(unit.limit), 0);
    dup.mul_(1 / unit.alpha).masked_fill_(of.up.abs().gt(unit.limit), 0);
  }
  return unit.interleaved ? at::stack({dgate, dup}, 2).view_as(x) : at::cat({dgate, dup}, 1);
}

at::Tensor grouped_values(const GroupedInput& in) {
  const Backend& backend = backend_of(in.x);
  switch (in.kind) {
    case GroupedInput::Kind::kPlain:
      return in.x;
    case GroupedInput::Kind::kRows:
      return backend.gather_rows(in.x, in.rows, 1);
    case GroupedInput::Kind::kGated: {
      const Halves of = limited(in.unit, halves(in.x, in.unit.interleaved));
      return backend.gated(in.unit.activation, of.gate, of.up);
    }
  }
  return {};
}

at::Tensor input_gradient(const GroupedInput& in, const at::Tensor& dh) {
  const Backend& backend = backend_of(in.x);
  switch (in.kind) {
    case GroupedInput::Kind::kPlain:
      return dh;
    case GroupedInput::Kind::kRows: {
      at::Tensor dx = at::zeros_like(in.x);
      const auto add = [&] { backend.scatter_rows(dh, in.rows, 1, dx); };
      if (in.ranks)
        in.ranks->in_turn(dx, add);
      else
        add();
      return dx;
    }
    case GroupedInput::Kind::kGated:
      return gated_gradient(in.unit, in.x, dh);
  }
  return {};
}

variable_list grouped_products(const GroupedInput& input, const std::vector<int64_t>& offsets,
                               const Layers& layers) {
  const at::Tensor h = grouped_values(input);
  variable_list outputs;
  for (const std::vector<LinearOperand>& layer : layers) {
    at::Tensor y = at::empty({h.size(0), layer.at(0).weight.out()}, h.options());
    backend_of(h).grouped_multiply(h, offsets, layer, y);
    outputs.push_back(y);
  }
  return outputs;
}

// The arguments of a call except its tensors: x, then weight and, where there is one, bias of every
// operand of every layer.
struct GroupedKept {
  GroupedInput input;
  std::vector<int64_t> offsets;
  Layers layers;
  std::vector<std::vector<bool>> has_bias;

  Layers layers_of(at::TensorList tensors) const {
    Layers out = layers;
    size_t place = 1;
    for (size_t i = 0; i < out.size(); ++i)
      for (size_t g = 0; g < out[i].size(); ++g) {
        Weight& weight = out[i][g].weight;
        if (!weight.quantized) weight.values = tensors[place];
        ++place;
        if (has_bias[i][g]) out[i][g].bias = tensors[place++];
      }
    return out;
  }
  GroupedInput input_of(at::TensorList tensors) const {
    GroupedInput in = input;
    in.x = tensors[0];
    return in;
  }
};

struct GroupedFunction : Function<GroupedFunction> {
  static variable_list forward(AutogradContext* ctx, GroupedKept what, at::TensorList tensors) {
    variable_list outputs =
        grouped_products(what.input_of(tensors), what.offsets, what.layers_of(tensors));
    for (std::vector<LinearOperand>& layer : what.layers)
      for (LinearOperand& operand : layer) operand.weight.panels.reset();
    ctx->save_for_backward(tensors.vec());
    ctx->set_materialize_grads(false);
    keep(ctx, std::move(what));
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const GroupedKept& what = kept<GroupedKept>(ctx);
    const GroupedInput in = what.input_of(saved);
    const Layers layers = what.layers_of(saved);
    const Backend& backend = backend_of(in.x);
    variable_list grads(saved.size());
    at::Tensor h, dh;
    size_t place = 1;
    for (size_t i = 0; i < layers.size(); ++i) {
      const size_t first = place;
      for (const bool bias : what.has_bias[i]) place += bias ? 2 : 1;
      if (!douts[i].defined()) continue;
      const at::Tensor dy = douts[i].contiguous();
      if (ctx->needs_input_grad(0)) {
        const bool begins = !dh.defined();
        if (begins) dh = at::empty({dy.size(0), layers[i][0].weight.in()}, dy.options());
        backend.grouped_multiply_transposed(dy, what.offsets, layers[i], dh, !begins);
      }
      weight_gradients(ctx, what, layers[i], what.has_bias[i], first, dy, in, h, grads);
    }
    if (dh.defined()) grads[0] = input_gradient(in, dh);
    grads.insert(grads.begin(), at::Tensor());  // for the kept arguments
    return grads;
  }

 private:
  // Those of a layer's operands, of which the first one's weight is tensor `first`; h is the
  // input's values, made where they are first needed.
  static void weight_gradients(AutogradContext* ctx, const GroupedKept& what,
                               const std::vector<LinearOperand>& layer,
                               const std::vector<bool>& has_bias, size_t first,
                               const at::Tensor& dy, const GroupedInput& in, at::Tensor& h,
                               variable_list& grads) {
    std::vector<at::Tensor> dw(layer.size());
    bool any = false;
    size_t place = first;
    for (size_t g = 0; g < layer.size(); ++g) {
      if (ctx->needs_input_grad(place)) {
        any = true;
        grads[place] = dw[g] = at::empty_like(layer[g].weight.values);
      }
      ++place;
      if (!has_bias[g]) continue;
      const int64_t rows = what.offsets[g + 1] - what.offsets[g];
      if (ctx->needs_input_grad(place))
        grads[place] = sum_of_rows(dy.narrow(0, what.offsets[g], rows));
      ++place;
    }
    if (!any) return;
    if (!h.defined()) h = grouped_values(in);
    backend_of(h).grouped_weight_gradients(layer, dy, h, what.offsets, dw);
  }
};

}  // namespace

GroupedInput GroupedInput::plain(at::Tensor x) {
  return {.kind = Kind::kPlain, .x = std::move(x), .rows = {}};
}
GroupedInput GroupedInput::select(at::Tensor x, const std::vector<int64_t>& rows,
                                  std::shared_ptr<Ranks> ranks) {
  at::Tensor places = indices(rows, x);
  return {
      .kind = Kind::kRows, .x = std::move(x), .rows = std::move(places), .ranks = std::move(ranks)};
}
GroupedInput GroupedInput::gated(at::Tensor gate_up, const GatedUnit& unit) {
  return {.kind = Kind::kGated, .x = std::move(gate_up), .rows = {}, .unit = unit};
}

std::vector<at::Tensor> grouped_linear(const GroupedInput& input,
                                       const std::vector<int64_t>& offsets, const Layers& layers) {
  check(input.x.is_contiguous() && !layers.empty(), "grouped layers read contiguous rows");
  const int64_t width =
      input.kind == GroupedInput::Kind::kGated ? input.x.size(1) / 2 : input.x.size(1);
  for (const std::vector<LinearOperand>& layer : layers) {
    check(layer.size() + 1 == offsets.size() && !layer.empty(), "grouped layers: ", layer.size(),
          " weights for ", offsets.size(), " offsets");
    for (const LinearOperand& operand : layer)
      check(operand.weight.in() == width && operand.weight.out() == layer[0].weight.out(),
            "grouped layers: a weight of ", operand.weight.out(), " by ", operand.weight.in(),
            " beside one of ", layer[0].weight.out(), " by ", width);
  }
  if (!at::GradMode::is_enabled()) return grouped_products(input, offsets, layers);
  variable_list tensors{input.x};
  GroupedKept what{input, offsets, layers, {}};
  what.input.x = at::Tensor();
  for (std::vector<LinearOperand>& layer : what.layers) {
    what.has_bias.emplace_back();
    for (LinearOperand& operand : layer) {
      tensors.push_back(operand.weight.tensor());
      operand.weight.values.reset();
      what.has_bias.back().push_back(operand.bias.defined());
      if (operand.bias.defined()) tensors.push_back(operand.bias);
      operand.bias.reset();
    }
  }
  return GroupedFunction::apply(std::move(what), at::TensorList(tensors));
}

}  // namespace temper::ops
