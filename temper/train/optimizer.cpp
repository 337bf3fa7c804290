#include "temper/train/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "temper/base/error.h"
#include "temper/models/load.h"
#include "temper/ops/cpu/rows.h"

namespace temper::train {

Optimizer::Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters,
                     const std::string& where)
    : config_(config),
      rule_(optimizers().find(config.name, "optimizer.name").make(config)),
      parameters_(std::move(parameters)) {
  apply_groups(config_.groups, config_.learning_rate, parameters_, where);
  for (const NamedParameter& p : parameters_) {
    layout_.push_back(rule_->state(p.name, p.parameter->shape()));
    std::vector<at::Tensor>& state = state_.emplace_back();
    for (const StateTensor& s : layout_.back()) state.push_back(at::zeros(s.shape, s.dtype));
  }
}

double Optimizer::grad_norm() const {
  double squares = 0;
  for (const NamedParameter& p : parameters_) {
    const at::Tensor& grad = p.parameter->value().grad();
    if (grad.defined())
      squares += kernels::sum_of_squares(grad.numel(), grad.const_data_ptr<float>());
  }
  return std::sqrt(squares);
}

void Optimizer::step(double rate, double grad_scale) {
  ++steps_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NamedParameter& p = parameters_[i];
    nn::Parameter& parameter = *p.parameter;
    at::Tensor grad = parameter.value().grad();
    if (!grad.defined()) grad = at::zeros(parameter.shape(), at::kFloat);
    const double decay = parameter.shape().size() >= 2 ? config_.weight_decay : 0;
    rule_->update({.learning_rate = rate * p.rate_scale,
                   .weight_decay = p.weight_decay.value_or(decay),
                   .grad_scale = grad_scale,
                   .step = steps_},
                  grad.contiguous(), parameter.value().detach(), state_[i]);
    parameter.mark_updated();
  }
  zero_grad();
}

void Optimizer::zero_grad() {
  for (const NamedParameter& p : parameters_) p.parameter->value().mutable_grad().reset();
}

TensorMap Optimizer::save() const {
  TensorMap tensors;
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t s = 0; s < state_[i].size(); ++s)
      tensors[parameters_[i].name + "." + layout_[i][s].name] = models::to_view(state_[i][s]);
  return tensors;
}

void Optimizer::check_moments(const TensorMap& tensors, const std::string& where) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const StateTensor& s : layout_[i]) {
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
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t s = 0; s < layout_[i].size(); ++s)
      state_[i][s] = models::to_tensor(tensors.at(parameters_[i].name + "." + layout_[i][s].name),
                                       layout_[i][s].dtype)
                         .clone();
  steps_ = steps;
}

}  // namespace temper::train
