// Seed-OSS (ByteDance): Llama with a bias of queries, keys and values, and heads of a size of their
// own.
//   h = x + o(attend(rotate(q(n1 x)), rotate(k(n1 x)), v(n1 x)))
//   y = h + down(silu(gate(n2 h)) * up(n2 h))
#include <nlohmann/json.hpp>

#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_config.h"

namespace temper::models {
namespace {

DecoderConfig seed_oss_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 155136,
                           .hidden_size = 4096,
                           .intermediate_size = 27648,
                           .num_hidden_layers = 64,
                           .num_attention_heads = 80,
                           .num_key_value_heads = 8,
                           .head_dim = 128,
                           .max_position_embeddings = 524288});
  c.attention.qkv_bias = config.boolean("attention_bias", true);
  c.attention.o_bias = config.boolean("attention_out_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

void read_seed_oss_gguf(const GgufSource& source, Json& config) {
  config["attention_bias"] = source.any_block_has("attn_q.bias");
}

const RegisteredFamily kSeedOss(
    {.model_type = "seed_oss",
     .help = "Seed-OSS: biases on q, k and v, a head size of its own",
     .config = &seed_oss_config,
     .causal_lm = "SeedOssForCausalLM",
     .sequence_classification = "SeedOssForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "seed_oss", .post_norm = true, .read = &read_seed_oss_gguf}});

}  // namespace
}  // namespace temper::models
