// The interface of an optimizer: the state of a parameter, and one update of it. A new one is a
// file in optimizers/ that ends with a `Registered<OptimizerKind>`.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "temper/base/registry.h"
#include "temper/nn/role.h"
#include "temper/train/config.h"

namespace temper::train {

// A tensor that an optimizer keeps for a parameter and saves in checkpoints; zeros at first.
struct StateTensor {
  std::string name;  // "first": saved as PARAMETER.first
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

struct Update {
  double learning_rate;  // learning rate of this parameter in this step
  double weight_decay;
  double grad_scale;  // multiplies the gradient: clipping
  int64_t step;       // number of the step, from 1
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Of a parameter of this role and shape.
  virtual std::vector<StateTensor> state(nn::Role role,
                                         const std::vector<int64_t>& shape) const = 0;
  // Whether an element's update depends on that element of gradient, value and state alone, which
  // then have one shape: ranks that share out the parameter update their parts. Others update it
  // whole, one rank for all.
  virtual bool by_element(nn::Role /*role*/, const std::vector<int64_t>& /*shape*/) const {
    return false;
  }
  // Writes `value` and `state`, the tensors that state() listed, on the value's device. grad and
  // value are contiguous float32 of the same shape. On the native backend the bits do not depend on
  // the machine or its number of threads.
  virtual void update(const Update& update, const at::Tensor& grad, const at::Tensor& value,
                      std::span<const at::Tensor> state) const = 0;
};

// Whether an update of this tensor is one of the loops over host memory; else it is the same
// formula in ATen's calls, on the tensor's device.
bool updates_on_host(const at::Tensor& value);

// An optimizer as its file registers it: how its rule is made, and which keys of the section it
// reads. Keys that are none are not read.
struct OptimizerKind {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerSection& config);
  std::optional<std::array<double, 2>> betas = {};  // default values of optimizer.betas
  std::optional<double> eps = {}, momentum = {};
  std::unique_ptr<OptimizerKeys> (*own_keys)() = nullptr;
};

// The optimizers by the name that optimizer.name takes.
Registry<OptimizerKind>& optimizers();

template <class Rule>
std::unique_ptr<UpdateRule> make_rule(const OptimizerSection& config) {
  if constexpr (std::is_constructible_v<Rule, const OptimizerSection&>)
    return std::make_unique<Rule>(config);
  else
    return std::make_unique<Rule>();  // it reads no key
}

}  // namespace temper::train
