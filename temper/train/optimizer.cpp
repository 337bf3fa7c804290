#include "temper/train/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "temper/base/error.h"
#include "temper/models/load.h"
#include "temper/ops/cpu/rows.h"

namespace temper::train {

std::vector<NamedParameter> trainable_parameters(nn::Module& model) {
  std::vector<NamedParameter> parameters;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.trainable()) parameters.push_back({name, &p});
  });
  return parameters;
}

double learning_rate(const OptimizerSection& c, int64_t step, int64_t steps) {
  const double done = static_cast<double>(step - 1), warmup = static_cast<double>(c.warmup_steps);
  if (done < warmup) return c.learning_rate * done / warmup;
  if (c.schedule == OptimizerSection::Schedule::kConstant) return c.learning_rate;
  const double progress = (done - warmup) / std::max(1.0, static_cast<double>(steps) - warmup);
  const double left = c.schedule == OptimizerSection::Schedule::kLinear
                          ? 1 - progress
                          : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return c.learning_rate * (c.final_lr_fraction + (1 - c.final_lr_fraction) * left);
}

Optimizer::Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters)
    : config_(config), parameters_(std::move(parameters)) {
  const bool adamw = config_.name == "adamw";
  for (const NamedParameter& p : parameters_) {
    const bool first = adamw || config_.momentum > 0;
    first_.push_back(first ? at::zeros(p.parameter->shape(), at::kFloat) : at::Tensor());
    second_.push_back(adamw ? at::zeros(p.parameter->shape(), at::kFloat) : at::Tensor());
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
  const bool adamw = config_.name == "adamw";
  const double t = static_cast<double>(steps_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    nn::Parameter& parameter = *parameters_[i].parameter;
    at::Tensor grad = parameter.value().grad();
    if (!grad.defined()) grad = at::zeros(parameter.shape(), at::kFloat);
    const double decay = parameter.shape().size() >= 2 ? config_.weight_decay : 0;
    float* values = static_cast<float*>(parameter.value().data_ptr());
    const float* g = grad.const_data_ptr<float>();
    float* first = first_[i].defined() ? first_[i].mutable_data_ptr<float>() : nullptr;
    if (adamw)
      kernels::adamw(
          grad.numel(),
          {rate, config_.betas[0], config_.betas[1], config_.eps, decay,
           1 - std::pow(config_.betas[0], t), 1 - std::pow(config_.betas[1], t), grad_scale},
          g, values, first, second_[i].mutable_data_ptr<float>());
    else
      kernels::sgd(grad.numel(), rate, config_.momentum, decay, grad_scale, steps_ == 1, g, values,
                   first);
    parameter.mark_updated();
  }
  zero_grad();
}

void Optimizer::zero_grad() {
  for (const NamedParameter& p : parameters_) p.parameter->value().mutable_grad().reset();
}

TensorMap Optimizer::save() const {
  TensorMap tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (first_[i].defined()) tensors[parameters_[i].name + ".first"] = models::to_view(first_[i]);
    if (second_[i].defined())
      tensors[parameters_[i].name + ".second"] = models::to_view(second_[i]);
  }
  return tensors;
}

void Optimizer::check_moments(const TensorMap& tensors, const std::string& where) const {
  const auto look = [&](const std::string& name, const at::Tensor& moment) {
    if (!moment.defined()) return;
    const auto it = tensors.find(name);
    check<DataError>(it != tensors.end() && it->second.shape == moment.sizes().vec(), where, ": `",
                     name, "` is missing or of another shape; the checkpoint is of another run");
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    look(parameters_[i].name + ".first", first_[i]);
    look(parameters_[i].name + ".second", second_[i]);
  }
}

void Optimizer::load(const TensorMap& tensors, int64_t steps, const std::string& where) {
  check_moments(tensors, where);
  const auto take = [&](const std::string& name, at::Tensor& into) {
    if (into.defined()) into = models::to_tensor(tensors.at(name), at::kFloat).clone();
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    take(parameters_[i].name + ".first", first_[i]);
    take(parameters_[i].name + ".second", second_[i]);
  }
  steps_ = steps;
}

}  // namespace temper::train
