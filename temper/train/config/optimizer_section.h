// The section `optimizer` of a run's config (optimizers/optimizer_config.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"

namespace temper::train {

// Config keys that one optimizer alone has: the section `optimizer.NAME`.
class OptimizerKeys {
 public:
  virtual ~OptimizerKeys() = default;
  virtual void fields(Fields& f) = 0;
  virtual std::unique_ptr<OptimizerKeys> clone() const = 0;
};

// A section's keys of every optimizer that has its own, with their defaults at first. Copies are
// deep.
class OwnOptimizerKeys {
 public:
  OwnOptimizerKeys();
  OwnOptimizerKeys(const OwnOptimizerKeys& other);
  OwnOptimizerKeys& operator=(const OwnOptimizerKeys& other);

  void fields(Fields& f);
  template <class Keys>
  const Keys& of(const std::string& name) const {
    return dynamic_cast<const Keys&>(*by_name_.at(name));
  }

 private:
  std::map<std::string, std::unique_ptr<OptimizerKeys>> by_name_;
};

// Parameters whose names match a pattern, with values of their own.
struct ParameterGroup {
  std::string match;
  std::optional<double> learning_rate, weight_decay;
  void fields(Fields& f);
};

// Keys that several optimizers read are members; those of one alone are in `own`. What an optimizer
// is, and which keys it reads with which defaults, is said in its own file (update_rule.h).
struct OptimizerSection {
  enum class Schedule { kCosine, kLinear, kConstant, kPolynomial, kInverseSqrt, kWsd };
  enum class DecayShape { kCosine, kLinear, kSqrt };
  std::string name = "adamw";
  double learning_rate = 2e-5;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;
  double max_grad_norm = 1;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;
  double final_lr_fraction = 0;
  double power = 1;
  std::optional<int64_t> decay_steps;
  DecayShape decay_shape = DecayShape::kCosine;
  OwnOptimizerKeys own;
  std::vector<ParameterGroup> groups;
  void fields(Fields& f);
};

}  // namespace temper::train
