// Llama (Touvron et al., arXiv 2302.13971; Llama 3, arXiv 2407.21783): norms before attention and
// MLP, rotary positions, a SwiGLU.
#include "temper/models/families.h"

namespace temper::models {

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

namespace {

std::unique_ptr<Backbone> make_llama(const HfConfig& config) {
  return std::make_unique<Decoder<PreNormBlock>>(llama_config(config));
}

}  // namespace

Family llama_family() {
  return {.model_type = "llama",
          .make = &make_llama,
          .help = "Llama 2 and 3.x, with llama3, linear, yarn or dynamic rope scaling",
          .causal_lm = "LlamaForCausalLM",
          .sequence_classification = "LlamaForSequenceClassification",
          .sanitize = &unwrap_language_model,
          .shards = decoder_shards()};
}

}  // namespace temper::models
