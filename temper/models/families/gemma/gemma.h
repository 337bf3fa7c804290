// What the three generations of Gemma have in common.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// Norms that multiply by 1 + weight, embeddings scaled by sqrt(hidden).
void apply_gemma_defaults(const HfConfig& config, DecoderConfig& of_gemma);

}  // namespace temper::models
