// The config of Llama, which Qwen2 and Qwen3 extend.
#pragma once

#include "temper/models/model.h"

namespace temper::models {

struct LlamaConfig {
  explicit LlamaConfig(const HfConfig& config);  // throws ConfigError

  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
      num_key_value_heads, head_dim;
  double rms_norm_eps, initializer_range;
  bool tie_word_embeddings, attention_bias, mlp_bias;
  ops::Activation activation;
  nn::RotaryConfig rotary;
  int64_t sliding_window = 0;
  std::vector<bool> sliding;  // by layer
  bool qkv_bias = false;      // Qwen2: on q, k and v, not on o
  bool qk_norm = false;       // Qwen3
};

std::unique_ptr<CausalLM> make_llama(const LlamaConfig& config);

}  // namespace temper::models
