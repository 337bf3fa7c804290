// An optimizer over a model's trainable parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "temper/io/safetensors.h"
#include "temper/train/config.h"
#include "temper/train/parameters.h"
#include "temper/train/update_rule.h"

namespace temper::train {

class Optimizer {
 public:
  // `where` begins the message of a ConfigError about the section's groups.
  Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters,
            const std::string& where = "optimizer.groups");

  // The global L2 norm of all gradients, in double. A parameter without a gradient counts as zero.
  double grad_norm() const;
  // One update from the parameters' gradients, scaled by grad_scale; the gradients are released.
  // `learning_rate` is the step's; parameters with a rate of their own use it times theirs.
  void step(double learning_rate, double grad_scale);
  void zero_grad();

  // The state by name, as PARAMETER.first, and its number of steps; load() takes what save() gave.
  // Throws DataError, and has then changed nothing; check_moments() throws the same.
  TensorMap save() const;
  void check_moments(const TensorMap& tensors, const std::string& where) const;
  void load(const TensorMap& tensors, int64_t steps, const std::string& where);
  int64_t steps() const { return steps_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

 private:
  OptimizerSection config_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<NamedParameter> parameters_;
  // By parameter.
  std::vector<std::vector<StateTensor>> layout_;
  std::vector<std::vector<at::Tensor>> state_;
  int64_t steps_ = 0;
};

}  // namespace temper::train
