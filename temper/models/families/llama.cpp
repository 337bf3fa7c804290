// Llama (Touvron et al., arXiv 2302.13971; Llama 3, arXiv 2407.21783): norms before attention and
// MLP, rotary positions, a SwiGLU.
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

DecoderConfig llama_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 2048});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kLlama(
    {.model_type = "llama",
     .help = "Llama 2 and 3.x: rope scaling llama3, linear, yarn or dynamic",
     .paper = "arXiv 2302.13971, arXiv 2407.21783",
     .config = &llama_config,
     .causal_lm = "LlamaForCausalLM",
     .sequence_classification = "LlamaForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "llama",
                              .interleaved = true,
                              .rope_factors = true,
                              .output_bias = true,
                              .mlp_bias = true}});

}  // namespace
}  // namespace temper::models
