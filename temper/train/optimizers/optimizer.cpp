#include "temper/train/optimizers/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"
#include "temper/models/files/load.h"
#include "temper/models/files/tensors.h"
#include "temper/ops/backend.h"

namespace temper::train {
namespace {

// Counts the bytes of a parameter and its state that this rank holds when it is first updated.
void count_bytes(const at::Tensor& trained, const std::vector<at::Tensor>& state) {
  const auto count = [](const char* what, const at::Tensor& x) {
    trace::count(str("bytes: ", what), static_cast<int64_t>(x.nbytes()));
  };
  count("trained weights", trained);
  if (trained.grad().defined()) count("gradients", trained.grad());
  for (const at::Tensor& s : state) count("optimizer state", s);
}

}  // namespace

Optimizer::Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters,
                     const std::string& where)
    : config_(config),
      rule_(optimizers().find(config.name, "optimizer.name").make(config)),
      parameters_(std::move(parameters)) {
  apply_groups(config_.groups, config_.learning_rate, parameters_, where);
  for (const NamedParameter& p : parameters_)
    slots_.push_back({.layout = rule_->state(p.role(), p.parameter->whole_shape())});
}

void Optimizer::set(const OptimizerSection& config) {
  check(config.name == config_.name && config.groups.empty(), "optimizer ", config.name, " for ",
        config_.name);
  config_ = config;
  rule_ = optimizers().find(config.name).make(config);
}

// A parameter that is updated whole has its state on the rank that has least so far.
void Optimizer::make_state() {
  if (std::exchange(has_state_, true)) return;
  std::vector<int64_t> load;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const nn::Parameter& parameter = *parameters_[i].parameter;
    const nn::Placement* placement = parameter.placement();
    Slot& slot = slots_[i];
    slot.by_parts = placement && rule_->by_element(parameters_[i].role(), parameter.whole_shape());
    std::vector<StateTensor> layout = slot.layout;
    if (slot.by_parts) {
      layout = rule_->state(parameters_[i].role(), parameter.trained().sizes().vec());
    } else if (placement && placement->fsdp && !placement->elsewhere()) {
      load.resize(static_cast<size_t>(placement->fsdp->size()));
      const auto least = std::min_element(load.begin(), load.end());
      slot.keeper = static_cast<int>(least - load.begin());
      *least += placement->bounds.back();
    }
    if (keeps(i))
      for (const StateTensor& s : layout) {
        if (disk_)
          slot.on_disk.push_back(disk_->add(s.shape, s.dtype));
        else
          slot.state.push_back(at::zeros(s.shape, parameter.trained().options().dtype(s.dtype)));
      }
    count_bytes(parameter.trained(), slot.state);
  }
  if (disk_) disk_->reserve();
}

bool Optimizer::keeps(size_t i) const {
  const nn::Placement* placement = parameters_[i].parameter->placement();
  if (!placement || slots_[i].by_parts) return true;
  return !placement->elsewhere() &&
         (!placement->fsdp || placement->fsdp->rank() == slots_[i].keeper);
}

at::Tensor Optimizer::gradient(size_t i) const {
  const at::Tensor& trained = parameters_[i].parameter->trained();
  return trained.grad().defined() ? trained.grad().contiguous()
                                  : at::zeros(trained.sizes(), trained.options());
}

// Gradients that several ranks hold alike count on the first of them. Where each rank has some of
// the experts, parameters are summed in the order of one rank.
double Optimizer::grad_norm(const dist::Mesh& mesh) const {
  std::vector<at::Tensor> counted;
  std::vector<double> squares;  // by parameter
  const bool in_order = mesh.by_expert && !parameters_.empty() &&
                        ops::backend_of(parameters_[0].parameter->trained()).batch_invariant();
  for (const NamedParameter& p : parameters_) {
    const at::Tensor& grad = p.parameter->trained().grad();
    const nn::Placement* placement = p.parameter->placement();
    const bool counts = ((placement && placement->tensor) || mesh.tensor->rank() == 0) &&
                        ((placement && placement->fsdp) || mesh.fsdp->rank() == 0);
    if (grad.defined() && counts) counted.push_back(grad);
    if (!in_order) continue;
    squares.push_back(counted.empty() ? 0 : ops::backend_of(grad).sum_of_squares(counted));
    counted.clear();
  }
  if (!in_order)
    squares.push_back(counted.empty() ? 0 : ops::backend_of(counted[0]).sum_of_squares(counted));
  mesh.model->all_reduce_sum(squares);
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

void Optimizer::step(double rate, double grad_scale) {
  make_state();
  ++steps_;
  const auto update_of = [&](size_t i) {
    const NamedParameter& p = parameters_[i];
    const double decay = p.parameter->decays() ? config_.weight_decay : 0;
    return Update{.learning_rate = rate * p.rate_scale,
                  .weight_decay = p.weight_decay.value_or(decay),
                  .grad_scale = grad_scale,
                  .step = steps_};
  };
  for (size_t i = 0; i < parameters_.size() && !disk_; ++i) {
    nn::Parameter& parameter = *parameters_[i].parameter;
    if (parameter.placement() && !slots_[i].by_parts) {
      step_whole(i, update_of(i), slots_[i].state);
      continue;
    }
    rule_->update(update_of(i), gradient(i), parameter.trained().detach(), slots_[i].state);
    parameter.mark_updated();
  }
  if (disk_) step_on_disk(update_of);
  zero_grad();
}

void Optimizer::step_whole(size_t i, const Update& update, std::span<const at::Tensor> state) {
  nn::Parameter& parameter = *parameters_[i].parameter;
  const nn::Placement& placement = *parameter.placement();
  if (placement.elsewhere()) return parameter.mark_updated();
  const auto whole = [&](const at::Tensor& part) {
    return placement.owner >= 0 ? placement.of_fsdp(part) : placement.whole(part);
  };
  const at::Tensor grad = whole(gradient(i));
  at::Tensor value = whole(parameter.trained().detach());
  if (keeps(i)) rule_->update(update, grad, value, state);
  if (placement.fsdp) placement.fsdp->broadcast(value, slots_[i].keeper);
  parameter.set_whole_value(value);
}

void Optimizer::zero_grad() {
  for (const NamedParameter& p : parameters_) p.parameter->trained().mutable_grad().reset();
}

std::string Optimizer::not_finite() const {
  std::vector<at::Tensor> values;
  for (const NamedParameter& p : parameters_)
    values.push_back(p.parameter->trained().detach().contiguous());
  if (values.empty()) return {};
  const ops::Backend& backend = ops::backend_of(values[0]);
  // Squares of float32 are finite in double, and so is their sum.
  if (std::isfinite(backend.sum_of_squares(values))) return {};
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(backend.sum_of_squares(values[i]))) return parameters_[i].name;
  return {};
}

at::Tensor Optimizer::whole_state(size_t i, size_t s) const {
  const nn::Placement& placement = *parameters_[i].parameter->placement();
  const Slot& slot = slots_[i];
  const at::Device device = parameters_[i].parameter->trained().device();
  if (slot.by_parts) return placement.whole(own_state(i, s).to(device));
  at::Tensor state =
      keeps(i)
          ? own_state(i, s).to(device)
          : at::empty(slot.layout[s].shape,
                      parameters_[i].parameter->trained().options().dtype(slot.layout[s].dtype));
  if (placement.fsdp && !placement.elsewhere()) placement.fsdp->broadcast(state, slot.keeper);
  return placement.owner >= 0 ? placement.from_owner(state, slot.layout[s].shape) : state;
}

TensorMap Optimizer::save() {
  make_state();
  check(!torn_, "an update ended half-way: some of the weights have changed, others have not");
  TensorMap tensors;
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t s = 0; s < slots_[i].layout.size(); ++s) {
      const StateTensor& layout = slots_[i].layout[s];
      TensorView& view = tensors[parameters_[i].name + "." + layout.name];
      if (!parameters_[i].parameter->placement()) {
        view = !disk_ ? models::to_view(slots_[i].state[s])
                      : models::view_of(layout.shape, layout.dtype,
                                        [=, this] { return own_state(i, s); });
        continue;
      }
      view = models::view_of(layout.shape, layout.dtype, [=, this] { return whole_state(i, s); });
      view.own = [=, this](const TensorView::Put& put) { put_own_state(i, s, put); };
    }
  return tensors;
}

void Optimizer::each_own_state(
    const std::function<void(const std::string& name, const at::Tensor& part)>& visit) const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t s = 0; s < states(i); ++s)
      visit(parameters_[i].name + "." + slots_[i].layout[s].name, own_state(i, s));
}

void Optimizer::put_own_state(size_t i, size_t s, const TensorView::Put& put) const {
  const Slot& slot = slots_[i];
  if (slot.by_parts)
    return models::put_runs(own_state(i, s), *parameters_[i].parameter->placement(), put);
  const TensorView whole = keeps(i) ? models::to_view(own_state(i, s)) : TensorView();
  put(0, whole.data, whole.num_bytes);
}

void Optimizer::check_moments(const TensorMap& tensors, const std::string& where) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const StateTensor& s : slots_[i].layout) {
      const std::string name = parameters_[i].name + "." + s.name;
      const auto it = tensors.find(name);
      check<DataError>(it != tensors.end() && it->second.shape == s.shape, where, ": `", name,
                       "` is missing or of another shape; the checkpoint is of another run");
      check<DataError>((it->second.dtype == DType::kUInt8) == (s.dtype == at::kByte), where, ": `",
                       name, "` is ", dtype_name(it->second.dtype),
                       "; the checkpoint is of another optimizer.name");
    }
  }
}

void Optimizer::load(const TensorMap& tensors, int64_t steps, const std::string& where) {
  check_moments(tensors, where);
  make_state();
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t s = 0; s < states(i); ++s) {
      const StateTensor& layout = slots_[i].layout[s];
      const at::Tensor whole =
          models::to_tensor(tensors.at(parameters_[i].name + "." + layout.name), layout.dtype);
      const at::Tensor own =
          slots_[i].by_parts ? parameters_[i].parameter->placement()->part(whole) : whole;
      if (disk_)
        disk_->write(slots_[i].on_disk[s], own);
      else
        slots_[i].state[s].copy_(own);
    }
  steps_ = steps;
}

}  // namespace temper::train
