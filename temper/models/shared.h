// Models that share weights.
#pragma once

#include <memory>
#include <vector>

#include "temper/models/model.h"

namespace temper::models {

// Gives `to`, of the same shape, the value of `from` in its format, without a copy.
void share_value(const nn::Parameter& from, nn::Parameter& to);

// The model without an adapter of its own, on the same memory. `config`: what it was made from.
std::unique_ptr<CausalLM> share_base(CausalLM& model, const HfConfig& config);

// The same of a scalar model, but for its head, which is left to be set.
std::unique_ptr<ScalarModel> share_base(ScalarModel& model, const HfConfig& config);

struct ParameterCopy {
  const nn::Parameter* from;
  nn::Parameter* to;
};
// The parameters of the model's adapter and of its frozen copy `index` (freeze_adapter_copy). What
// is set there is what Context::adapter = index computes with.
std::vector<ParameterCopy> adapter_copy(CausalLM& model, int index);
// Those of the low-rank adapter `from` of a model and of the adapter `to` of another one, of the
// same shape (nn::Context::adapter). Throws RunError where they adapt different layers.
std::vector<ParameterCopy> adapter_copy(Model& model, int from, Model& other, int to);
// The parameters of a model that train, and those of another of its shapes.
std::vector<ParameterCopy> trainable_copy(CausalLM& model, CausalLM& other);

}  // namespace temper::models
