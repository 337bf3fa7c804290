// GLM-4-0414: norms before and after attention and MLP; half of each head rotates, in neighbouring
// pairs; gate and up are one layer.
//   h = x + n2 o(attend(rotate(q(n1 x)), rotate(k(n1 x)), v(n1 x)))
//   g, u = split(gate_up(n3 h))
//   y = h + n4 down(silu(g) * u)
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

DecoderConfig glm4_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151552,
                           .hidden_size = 4096,
                           .intermediate_size = 13696,
                           .num_hidden_layers = 40,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 2,
                           .head_dim = 128,
                           .max_position_embeddings = 131072,
                           .norm_eps = 1.5625e-7});
  c.attention.qkv_bias = config.boolean("attention_bias", true);
  c.joined_mlp = true;
  c.norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
             "post_mlp_layernorm"};
  c.rotary = config.rotary(10000, c.max_position_embeddings, "", 0.5);
  c.rotary.interleaved = true;
  return c;
}

constexpr GgufName kGlm4GgufNames[] = {
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
};

const RegisteredFamily kGlm4({.model_type = "glm4",
                              .help = "GLM-4-0414: pre and post norms, half of each head rotates",
                              .config = &glm4_config,
                              .causal_lm = "Glm4ForCausalLM",
                              .sequence_classification = "Glm4ForSequenceClassification",
                              .sanitize = &unwrap_language_model,
                              .gguf = GgufArchitecture{
                                  .name = "glm4", .interleaved = true, .names = kGlm4GgufNames}});

}  // namespace
}  // namespace temper::models
