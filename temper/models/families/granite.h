// What Granite's dense models and its mixtures of experts have in common.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// Biases of attention, the factors of embeddings, residuals, scores and logits, and the rotary
// embedding. Throws ConfigError where logits would be divided by 0.
void apply_granite_factors(const HfConfig& config, DecoderConfig& of_granite);

// GgufArchitecture::add: the same factors as keys.
void add_granite_factors(const HfConfig& source, const DecoderConfig& of_granite, GgufForm& form);

}  // namespace temper::models
