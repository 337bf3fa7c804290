// Models of random weights.
#pragma once

#include <memory>
#include <string>

#include "temper/models/model.h"

namespace temper::models {

// A model of random weights, as transformers initializes its family; the same seed gives the same
// bits everywhere. Throws ConfigError for one that this machine's memory cannot hold.
std::unique_ptr<CausalLM> init_model(const HfConfig& config, uint64_t seed);

// Draws one parameter's initial value from (seed, name).
at::Tensor initial_value(const nn::Parameter& parameter, const std::string& name, uint64_t seed);

}  // namespace temper::models
