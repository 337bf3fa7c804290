#include "temper/ops/layers/grouped_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/bias_gradient.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {
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
    dup.mul_(1 / unit.alpha)
        .masked_fill_(of.up.gt(unit.limit).bitwise_or_(of.up.lt(-unit.limit)), 0);
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

bool any_ordered(const std::vector<LinearOperand>& layer) {
  return std::any_of(layer.begin(), layer.end(),
                     [](const LinearOperand& o) { return is_ordered(o.weight); });
}

// Inputs of a layer's groups, in the order in which each weight multiplies them.
at::Tensor in_code_orders(const std::vector<LinearOperand>& layer,
                          const std::vector<int64_t>& offsets, const at::Tensor& x) {
  if (!any_ordered(layer)) return x;
  at::Tensor out = at::empty_like(x);
  for (size_t g = 0; g < layer.size(); ++g) {
    const int64_t rows = offsets[g + 1] - offsets[g];
    out.narrow(0, offsets[g], rows)
        .copy_(in_code_order(layer[g].weight, x.narrow(0, offsets[g], rows)));
  }
  return out;
}
// The reverse: to = x.
void from_code_orders(const std::vector<LinearOperand>& layer, const std::vector<int64_t>& offsets,
                      const at::Tensor& x, at::Tensor& to) {
  for (size_t g = 0; g < layer.size(); ++g) {
    const int64_t rows = offsets[g + 1] - offsets[g];
    const at::Tensor part = x.narrow(0, offsets[g], rows);
    at::Tensor of = to.narrow(0, offsets[g], rows);
    if (is_ordered(layer[g].weight))
      of.index_copy_(1, layer[g].weight.quantized->order, part);
    else
      of.copy_(part);
  }
}

void grouped_transposed(const at::Tensor& dy, const std::vector<int64_t>& offsets,
                        const std::vector<LinearOperand>& layer, at::Tensor& dh, bool accumulate) {
  const Backend& backend = backend_of(dy);
  if (!any_ordered(layer))
    return backend.grouped_multiply_transposed(dy, offsets, layer, dh, accumulate);
  at::Tensor ordered = accumulate ? in_code_orders(layer, offsets, dh) : at::empty_like(dh);
  backend.grouped_multiply_transposed(dy, offsets, layer, ordered, accumulate);
  from_code_orders(layer, offsets, ordered, dh);
}

Tensors grouped_products(const GroupedInput& input, const std::vector<int64_t>& offsets,
                         const Layers& layers) {
  const at::Tensor h = grouped_values(input);
  Tensors outputs;
  for (const std::vector<LinearOperand>& layer : layers) {
    at::Tensor y = new_tensor({h.size(0), layer.at(0).weight.out()}, h);
    backend_of(h).grouped_multiply(in_code_orders(layer, offsets, h), offsets, layer, y);
    outputs.push_back(y);
  }
  return outputs;
}

// Of weights whose gradients are summed over further calls' rows: dw = their sums.
void go_on(const std::vector<LinearOperand>& layer, const at::Tensor& dy, const at::Tensor& h,
           const std::vector<int64_t>& offsets, size_t place, const Gradients& d) {
  for (size_t g = 0; g < layer.size(); ++g, place += 2) {
    RowSum* const sum = d.wanted(place) ? d.row_sum(place) : nullptr;
    if (!sum) continue;
    const bool goes_on = sum->sum.defined();
    if (!goes_on) sum->sum = at::empty_like(layer[g].weight.values);
    const int64_t rows = offsets[g + 1] - offsets[g];
    weight_gradient(layer[g].weight, dy.narrow(0, offsets[g], rows), h.narrow(0, offsets[g], rows),
                    sum->sum, goes_on);
  }
}

// Those of a layer's operands, of which the first one's weight is input `place` of the call; h is
// the input's values, made where they are first needed.
void add_weight_gradients(const GroupedInput& in, const std::vector<int64_t>& offsets,
                          const std::vector<LinearOperand>& layer, size_t place,
                          const at::Tensor& dy, const Gradients& d, at::Tensor& h, Tensors& grads) {
  Tensors dw(layer.size());
  bool any = false, any_sum = false;
  for (size_t g = 0; g < layer.size(); ++g) {
    const size_t weight = place + 2 * g, bias = weight + 1;
    if (d.wanted(weight) && d.row_sum(weight)) {
      any_sum = true;
    } else if (d.wanted(weight)) {
      any = true;
      grads[weight] = dw[g] = at::empty_like(layer[g].weight.values);
    }
    if (d.wanted(bias))
      give_bias_gradient(d, bias, dy.narrow(0, offsets[g], offsets[g + 1] - offsets[g]), grads);
  }
  if ((any || any_sum) && !h.defined()) h = grouped_values(in);
  if (any_sum) go_on(layer, dy, h, offsets, place, d);
  if (any) backend_of(h).grouped_weight_gradients(layer, dy, h, offsets, dw);
}

// Of the input's x, then weight and bias of every operand of every layer.
Tensors grouped_gradients(const GroupedInput& in, const std::vector<int64_t>& offsets,
                          const Layers& layers, const Gradients& d) {
  const size_t groups = layers[0].size();
  Tensors grads(1 + 2 * groups * layers.size());
  at::Tensor h, dh;
  for (size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor& dy = d[i];
    if (!dy.defined()) continue;
    if (d.wanted(0)) {
      const bool begins = !dh.defined();
      if (begins) dh = at::empty({dy.size(0), layers[i][0].weight.in()}, dy.options());
      grouped_transposed(dy, offsets, layers[i], dh, !begins);
    }
    add_weight_gradients(in, offsets, layers[i], 1 + 2 * groups * i, dy, d, h, grads);
  }
  if (dh.defined()) grads[0] = input_gradient(in, dh);
  return grads;
}

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
  Tensors inputs{input.x};
  Layers kept = layers;
  for (std::vector<LinearOperand>& layer : kept)
    for (LinearOperand& operand : layer) {
      inputs.insert(inputs.end(), {operand.weight.values, operand.bias});
      operand.weight.panels.reset();  // not for the backward pass
    }
  Recording call(inputs);
  call.reads(inputs);
  return call.outputs(grouped_products(input, offsets, layers), [=](const Gradients& d) {
    return grouped_gradients(input, offsets, kept, d);
  });
}

}  // namespace temper::ops
