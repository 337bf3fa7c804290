// The configs of the families, for what extends one of them.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

DecoderConfig llama_config(const HfConfig& config);
DecoderConfig qwen2_config(const HfConfig& config);
DecoderConfig qwen3_config(const HfConfig& config);
DecoderConfig gemma_config(const HfConfig& config);
DecoderConfig gemma2_config(const HfConfig& config);
DecoderConfig gemma3_text_config(const HfConfig& config);

// What the three generations of Gemma share: norms that multiply by 1 + weight, embeddings scaled
// by sqrt(hidden).
void apply_gemma_defaults(const HfConfig& config, DecoderConfig& of_gemma);
// Qwen2 and Qwen3: layers from max_window_layers on attend to a window where use_sliding_window
// says so.
std::vector<int64_t> qwen_windows(const HfConfig& config, int64_t layers);

}  // namespace temper::models
