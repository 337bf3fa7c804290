// OLMo 2 (arXiv 2501.00656): norms after attention and MLP alone, and over all queries and all keys
// of a token.
//   h = x + n1 o(attend(rotate(nq q(x)), rotate(nk k(x)), v(x)))
//   y = h + n2 down(silu(gate(h)) * up(h))
#include "temper/models/families/common.h"

namespace temper::models {

DecoderConfig olmo_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 50304,
                           .hidden_size = 4096,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 2048,
                           .norm_eps = 1e-5});
  c.norms = kNormsAfter;
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = c.attention.qk_norm_is_whole = true;
  return c;
}

namespace {

DecoderConfig olmo2_config(const HfConfig& config) {
  DecoderConfig c = olmo_config(config);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kOlmo2(
    {.model_type = "olmo2",
     .help = "OLMo 2: norms after attention and MLP alone, and over all q and k",
     .paper = "arXiv 2501.00656",
     .config = &olmo2_config,
     .causal_lm = "Olmo2ForCausalLM",
     .sequence_classification = "Olmo2ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{
         .name = "olmo2", .needs_head = true, .own_head_size = false, .post_norm = true}});

}  // namespace
}  // namespace temper::models
