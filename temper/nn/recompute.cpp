#include "temper/nn/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "temper/nn/linear.h"
#include "temper/ops/autograd.h"

namespace temper::nn {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The block's trainable parameters are inputs beside x: a function none of whose inputs asks for a
// gradient would make a constant, and a first block under an adapter, whose x comes from a frozen
// embedding, would silently not train.
struct RecomputeFunction : Function<RecomputeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const BlockFunction& block,
                            at::TensorList inputs) {
    const TransientPanels no_kept_panels;
    ctx->save_for_backward(inputs.vec());
    ops::keep(ctx, block);
    return block(inputs[0]);
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    variable_list inputs = ctx->get_saved_variables();
    const bool x_needed = ctx->needs_input_grad(0);
    at::Tensor x = inputs[0].detach();
    x.requires_grad_(x_needed);
    at::AutoGradMode with_gradients(true);
    const at::Tensor y = ops::kept<BlockFunction>(ctx)(x);
    variable_list wanted(inputs.begin() + 1, inputs.end());
    if (x_needed) wanted.insert(wanted.begin(), x);
    variable_list grads = torch::autograd::grad({y}, wanted, {douts[0]}, std::nullopt, false, true);
    if (!x_needed) grads.insert(grads.begin(), at::Tensor());
    grads.insert(grads.begin(), at::Tensor());  // the block
    return grads;
  }
};
}  // namespace

at::Tensor run_block(Module& block, const at::Tensor& x, const Context& context,
                     BlockFunction forward) {
  if (context.observe) (*context.observe)(x);
  if (!context.recompute || !at::GradMode::is_enabled()) return forward(x);
  variable_list inputs{x};
  block.each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.trainable()) inputs.push_back(parameter.value());
  });
  if (context.adapter > 0)  // copies of adapters are not listed
    block.each_module([&](const std::string&, Module& module) {
      auto* layer = dynamic_cast<Linear*>(&module);
      Lora* lora = layer ? layer->adapter(context.adapter) : nullptr;
      if (!lora) return;
      lora->each_parameter([&](const char*, Parameter& parameter) {
        if (parameter.trainable()) inputs.push_back(parameter.value());
      });
    });
  return RecomputeFunction::apply(forward, at::TensorList(inputs));
}

}  // namespace temper::nn
