// What the three generations of Gemma share; each one's file sets the switches.
#pragma once

#include "temper/models/model.h"

namespace temper::models {

struct GemmaConfig {
  explicit GemmaConfig(const HfConfig& config);  // throws ConfigError

  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
      num_key_value_heads, head_dim;
  double rms_norm_eps, initializer_range;
  bool tie_word_embeddings, attention_bias;
  ops::Activation activation;
  nn::RotaryConfig rotary;                       // of layers that attend to all
  std::optional<nn::RotaryConfig> local_rotary;  // Gemma 3: of layers that attend to a window
  double attention_scale;
  int64_t sliding_window = 0;
  std::vector<bool> sliding;  // by layer
  bool post_norms = false;    // Gemma 2 and 3: a norm after each half of the block, too
  bool qk_norm = false;       // Gemma 3
  double attention_soft_cap = 0, final_soft_cap = 0;  // Gemma 2
};

std::unique_ptr<CausalLM> make_gemma(const GemmaConfig& config);

}  // namespace temper::models
