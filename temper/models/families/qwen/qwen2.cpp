// Qwen2 and Qwen2.5 (arXiv 2407.10671): Llama with biases on q, k and v.
#include "temper/models/families/common.h"

namespace temper::models {

std::vector<int64_t> qwen_windows(const HfConfig& config, int64_t layers) {
  if (!config.boolean("use_sliding_window", false) || config.is_null("sliding_window"))
    return std::vector<int64_t>(static_cast<size_t>(layers), 0);
  const double from = config.number("max_window_layers", 28);
  return windows_of(config, layers, config.integer("sliding_window", 4096),
                    [&](int64_t layer) { return static_cast<double>(layer) >= from; });
}

namespace {

DecoderConfig qwen2_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151936,
                           .hidden_size = 4096,
                           .intermediate_size = 22016,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 32,
                           .max_position_embeddings = 32768});
  c.attention.qkv_bias = true;
  c.window = qwen_windows(config, c.num_hidden_layers);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  config.read_sections(c.rotary, {16, 24, 24}, /*interleaved=*/false);
  return c;
}

const RegisteredFamily kQwen2({.model_type = "qwen2",
                               .help = "Qwen2 and Qwen2.5: biases on q, k and v",
                               .paper = "arXiv 2407.10671",
                               .config = &qwen2_config,
                               .causal_lm = "Qwen2ForCausalLM",
                               .sequence_classification = "Qwen2ForSequenceClassification",
                               .sanitize = &unwrap_language_model,
                               .gguf = GgufArchitecture{.name = "qwen2", .own_head_size = false}});

}  // namespace
}  // namespace temper::models
