// What Granite's dense models and its mixtures of experts have in common.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// Biases of attention, the factors of embeddings, residuals, scores and logits, and the rotary
// embedding. Throws ConfigError where logits would be divided by 0.
void apply_granite_factors(const HfConfig& config, DecoderConfig& of_granite);

}  // namespace temper::models
