// What families have in common with one another.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// The three generations of Gemma: norms that multiply by 1 + weight, embeddings scaled by
// sqrt(hidden).
void apply_gemma_defaults(const HfConfig& config, DecoderConfig& of_gemma);

// Granite's dense models and its mixtures of experts: biases of attention, the factors of
// embeddings, residuals, scores and logits, and the rotary embedding. Throws ConfigError where
// logits would be divided by 0.
void apply_granite_factors(const HfConfig& config, DecoderConfig& of_granite);

// GgufArchitecture::add: the same factors as keys.
void add_granite_factors(const HfConfig& source, const DecoderConfig& of_granite, GgufForm& form);
// GgufArchitecture::read: the factors of these keys.
void read_granite_factors(const GgufSource& source, Json& config);

// OLMo 2 and 3: all but rotary positions and windows.
DecoderConfig olmo_config(const HfConfig& config);

// Qwen2 and Qwen3: layers from max_window_layers on attend to a window where use_sliding_window
// says so.
std::vector<int64_t> qwen_windows(const HfConfig& config, int64_t layers);

}  // namespace temper::models
