#include "temper/nn/unit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "temper/base/error.h"
#include "temper/nn/linear.h"
#include "temper/nn/router.h"
#include "temper/nn/run_again.h"
#include "temper/ops/autograd.h"

namespace temper::nn {
namespace {

class GatherGuard {
 public:
  explicit GatherGuard(ShardUnit* unit) : unit_(unit) {
    if (unit_) unit_->gather();
  }
  ~GatherGuard() { end(); }
  GatherGuard(const GatherGuard&) = delete;
  GatherGuard& operator=(const GatherGuard&) = delete;
  void end() {
    if (ShardUnit* unit = std::exchange(unit_, nullptr)) unit->release();
  }

 private:
  ShardUnit* unit_;
};

thread_local bool runs_again = false;

class RunAgain {
 public:
  explicit RunAgain(bool again) : before_(std::exchange(runs_again, again)) {}
  ~RunAgain() { runs_again = before_; }
  RunAgain(const RunAgain&) = delete;
  RunAgain& operator=(const RunAgain&) = delete;

 private:
  const bool before_;
};

// A call of run_unit whose gradient may be asked for.
struct UnitCall {
  UnitFunction forward;
  ShardUnit* unit = nullptr;
  bool recompute = false;
  std::vector<Parameter*> trainable;
  // The inputs, where it is computed again: in memory, or kept elsewhere.
  Tensors given = {};
  std::vector<std::unique_ptr<BlockInputs::Kept>> kept = {};
  // What forward read and gave, with the graph between them; empty where it is computed again.
  Tensors inputs = {}, outputs = {};

  // Runs forward with a graph of its own, which begins at the inputs and at the parameters.
  void record(const Tensors& from) {
    const at::AutoGradMode with_gradients(true);
    inputs.clear();
    for (const at::Tensor& x : from) inputs.push_back(x.detach().requires_grad_(x.requires_grad()));
    const RunAgain again(recompute);
    outputs = forward(inputs);
  }
};

Tensors unit_gradients(UnitCall& call, const ops::Gradients& d) {
  GatherGuard whole(call.unit);
  if (call.recompute) {
    Tensors from;
    for (size_t i = 0; i < call.given.size() + call.kept.size(); ++i) {
      const at::Tensor x = call.kept.empty() ? call.given[i] : call.kept[i]->take();
      from.push_back(x.detach().requires_grad_(d.wanted(i)));
    }
    call.record(from);
  }
  check(!call.outputs.empty(), "a second backward pass through a unit, whose graph is gone");
  Tensors from, dfrom, wanted;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!d[i].defined() || !call.outputs[i].requires_grad()) continue;
    from.push_back(call.outputs[i]);
    dfrom.push_back(d[i]);
  }
  for (const at::Tensor& x : call.inputs)
    if (x.requires_grad()) wanted.push_back(x);
  for (const Parameter* parameter : call.trainable) wanted.push_back(parameter->value());
  Tensors found(wanted.size());
  if (!from.empty()) found = torch::autograd::grad(from, wanted, dfrom, std::nullopt, false, true);
  Tensors grads;
  size_t next = 0;
  for (const at::Tensor& x : call.inputs)
    grads.push_back(x.requires_grad() ? found[next++] : at::Tensor());
  call.inputs.clear();
  call.outputs.clear();
  whole.end();
  std::vector<std::pair<Parameter*, at::Tensor>> of_parameters;
  for (Parameter* parameter : call.trainable) of_parameters.emplace_back(parameter, found[next++]);
  if (call.unit && !of_parameters.empty()) call.unit->reduce(of_parameters);
  for (auto& [parameter, gradient] : of_parameters) grads.push_back(std::move(gradient));
  return grads;
}

}  // namespace

Gathered::Gathered(Module& model) {
  std::set<ShardUnit*> seen;
  model.each_module([&](const std::string&, Module& module) {
    if (module.unit() && seen.insert(module.unit()).second) units_.push_back(module.unit());
  });
  for (ShardUnit* unit : units_) unit->gather();
}

Gathered::~Gathered() {
  for (ShardUnit* unit : units_) unit->release();
}

bool is_run_again() { return runs_again; }

std::vector<Parameter*> trainable_parameters(const std::vector<Module*>& modules,
                                             const std::vector<int>& adapters) {
  std::vector<Parameter*> found;
  const auto add = [&](Parameter& parameter) {
    if (parameter.trainable()) found.push_back(&parameter);
  };
  for (Module* module : modules) {
    module->each_parameter([&](const std::string&, Parameter& parameter) { add(parameter); });
    for (const int adapter : adapters) {
      if (adapter <= 0) continue;
      const auto add_copy = [&](const std::string&, Linear& layer) {
        if (Lora* lora = layer.adapter(adapter))
          lora->each_parameter([&](const char*, Parameter& parameter) { add(parameter); });
      };
      module->visit({.linear = add_copy, .tied_head = add_copy, .router = add_copy});
    }
  }
  return found;
}

Tensors run_unit(Module& module, const Tensors& inputs, const std::vector<int>& adapters,
                 bool recompute, const UnitFunction& forward, BlockInputs* kept) {
  ShardUnit* const unit = module.unit();
  const bool differentiable = at::GradMode::is_enabled();
  if (!differentiable || (!unit && !recompute)) {
    const GatherGuard whole(unit);
    return forward(inputs);
  }
  const auto call = std::make_shared<UnitCall>(
      UnitCall{forward, unit, recompute, trainable_parameters({&module}, adapters)});
  // The trainable parameters, or what is kept of them here, are inputs beside the others: a
  // function none of whose inputs asks for a gradient would make a constant, and a first block
  // under an adapter, whose input comes from a frozen embedding, would silently not train.
  Tensors all = inputs;
  for (const Parameter* parameter : call->trainable) all.push_back(parameter->trained());
  ops::Recording recording(all);
  const TransientPanels no_kept_panels;
  const GatherGuard whole(unit);
  Tensors outputs;
  if (recompute) {
    recording.reads(inputs);
    if (kept && recording.records())
      for (const at::Tensor& x : inputs) call->kept.push_back(kept->keep(x));
    else
      call->given = inputs;
    outputs = forward(inputs);
  } else {
    call->record(inputs);
    for (const at::Tensor& y : call->outputs) outputs.push_back(y.detach());
  }
  return recording.outputs(outputs,
                           [call](const ops::Gradients& d) { return unit_gradients(*call, d); });
}

at::Tensor run_block(Module& block, const at::Tensor& x, const Context& context,
                     const BlockFunction& forward) {
  if (context.observe) (*context.observe)(x);
  if (!block.unit() && !context.recompute) return forward(x);
  return run_unit(
      block, {x}, context.adapters(), context.recompute,
      [forward](const Tensors& inputs) { return Tensors{forward(inputs[0])}; }, context.inputs)[0];
}

}  // namespace temper::nn
