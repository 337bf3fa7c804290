// Qwen3 (arXiv 2505.09388): Llama with an RMSNorm over each head's query and key, and a head_dim of
// its own.
#include "temper/models/families/common.h"

namespace temper::models {
namespace {

DecoderConfig qwen3_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151936,
                           .hidden_size = 4096,
                           .intermediate_size = 22016,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 32,
                           .head_dim = 128,
                           .max_position_embeddings = 32768});
  c.attention.qk_norm = true;
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.window = qwen_windows(config, c.num_hidden_layers);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  config.read_sections(c.rotary, {24, 20, 20}, /*interleaved=*/true);
  return c;
}

const RegisteredFamily kQwen3({.model_type = "qwen3",
                               .help = "Qwen3: norms on q and k",
                               .paper = "arXiv 2505.09388",
                               .config = &qwen3_config,
                               .causal_lm = "Qwen3ForCausalLM",
                               .sequence_classification = "Qwen3ForSequenceClassification",
                               .sanitize = &unwrap_language_model,
                               .gguf = GgufArchitecture{.name = "qwen3"}});

}  // namespace
}  // namespace temper::models
