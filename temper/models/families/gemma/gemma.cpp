// Gemma (arXiv 2403.08295): norms multiply by 1 + weight, embeddings are scaled by sqrt(hidden), a
// GeGLU.
#include <cmath>

#include "temper/models/families/common.h"

namespace temper::models {

void apply_gemma_defaults(const HfConfig& config, DecoderConfig& c) {
  c.attention.norm_one_plus = true;
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  if (config.boolean("use_bidirectional_attention", false))
    config.fail("use_bidirectional_attention", "is not supported");
}

namespace {

DecoderConfig gemma_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 256000,
                           .hidden_size = 3072,
                           .intermediate_size = 24576,
                           .num_hidden_layers = 28,
                           .num_attention_heads = 16,
                           .num_key_value_heads = 16,
                           .head_dim = 256,
                           .max_position_embeddings = 8192,
                           .tie_word_embeddings = true,
                           .activation = "gelu_pytorch_tanh"});
  // The official files say "gelu" where they mean the tanh form.
  if (c.activation == ops::Activation::kGelu) c.activation = ops::Activation::kGeluTanh;
  apply_gemma_defaults(config, c);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kGemma(
    {.model_type = "gemma",
     .help = "Gemma: norms that multiply by 1 + weight, scaled embeddings",
     .paper = "arXiv 2403.08295",
     .config = &gemma_config,
     .causal_lm = "GemmaForCausalLM",
     .sequence_classification = "GemmaForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "gemma", .gelu = true, .own_head = false}});

}  // namespace
}  // namespace temper::models
