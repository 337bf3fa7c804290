// Optimizers over a model's trainable parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "temper/io/safetensors.h"
#include "temper/nn/module.h"
#include "temper/train/config.h"

namespace temper::train {

struct NamedParameter {
  std::string name;
  nn::Parameter* parameter;
};
std::vector<NamedParameter> trainable_parameters(nn::Module& model);

// The learning rate of step s (from 1) of n.
double learning_rate(const OptimizerSection& config, int64_t step, int64_t steps);

class Optimizer {
 public:
  Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters);

  // The global L2 norm of all gradients, in double. A parameter without a gradient counts as zero.
  double grad_norm() const;
  // One update from the parameters' gradients, scaled by grad_scale; the gradients are released.
  void step(double learning_rate, double grad_scale);
  void zero_grad();

  // The moments by name, and their number of steps; load() takes what save() gave. Throws
  // DataError, and has then changed nothing; check_moments() throws the same.
  TensorMap save() const;
  void check_moments(const TensorMap& tensors, const std::string& where) const;
  void load(const TensorMap& tensors, int64_t steps, const std::string& where);
  int64_t steps() const { return steps_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

 private:
  OptimizerSection config_;
  std::vector<NamedParameter> parameters_;
  std::vector<at::Tensor> first_, second_;  // SGD: the momentum buffer is `first_`
  int64_t steps_ = 0;
};

}  // namespace temper::train
