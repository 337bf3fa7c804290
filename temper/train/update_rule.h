// What an optimizer is: the state of a parameter, and one update of it. A new one is a file in
// optimizers/ and a line in the table.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/base/registry.h"
#include "temper/train/config.h"

namespace temper::train {

// A tensor that an optimizer keeps of a parameter, and checkpoints with it; zeros in the beginning.
struct StateTensor {
  std::string name;  // "first": saved as PARAMETER.first
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

struct Update {
  double learning_rate;  // of this parameter in this step
  double weight_decay;
  double grad_scale;  // multiplies the gradient: clipping
  int64_t step;       // from 1
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<StateTensor> state(const std::string& name,
                                         const std::vector<int64_t>& shape) const = 0;
  // Whether an element's update depends on that element of gradient, value and state alone, which
  // then have one shape: ranks that share out the parameter update their parts. Others update it
  // whole, one rank for all.
  virtual bool by_element(const std::string& /*name*/,
                          const std::vector<int64_t>& /*shape*/) const {
    return false;
  }
  // Writes `value` and `state`, the tensors that state() listed. grad and value are contiguous
  // float32 of the same shape. The bits do not depend on the machine or its number of threads.
  virtual void update(const Update& update, const at::Tensor& grad, const at::Tensor& value,
                      std::span<const at::Tensor> state) const = 0;
};

struct UpdateRuleMaker {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerSection& config);
  // Keys of the section that this one reads and not all do: "betas", "eps", "momentum", "muon".
  std::vector<std::string> keys;
  bool reads(std::string_view key) const;
};

// The optimizers by the name that optimizer.name takes.
Registry<UpdateRuleMaker>& optimizers();

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSection& config);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerSection& config);
std::unique_ptr<UpdateRule> make_lion(const OptimizerSection& config);
std::unique_ptr<UpdateRule> make_adafactor(const OptimizerSection& config);
std::unique_ptr<UpdateRule> make_muon(const OptimizerSection& config);
std::unique_ptr<UpdateRule> make_adamw8bit(const OptimizerSection& config);

}  // namespace temper::train
