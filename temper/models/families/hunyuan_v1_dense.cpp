// Hunyuan's dense models (Tencent): Llama with norms on each head's query and key after rotary
// embedding, and a rotary base that alpha stretches.
//   h = x + o(attend(nq rotate(q(n1 x)), nk rotate(k(n1 x)), v(n1 x)))
//   y = h + down(silu(gate(n2 h)) * up(n2 h))

#include "temper/base/exact_math.h"
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

// Files call it dynamic, but with alpha no token's rotation depends on the length of the text.
void apply_alpha(const HfConfig& config, DecoderConfig& c) {
  const std::optional<HfConfig> rope = config.rope_section();
  const double alpha = rope ? rope->number("alpha", 0) : 0;
  if (c.rotary.kind != nn::RotaryConfig::Kind::kDynamic || alpha == 0) return;
  if (alpha < 0) rope->fail("alpha", "expected a number above 0");
  const auto dim = static_cast<double>(c.attention.head_dim);
  c.rotary.kind = nn::RotaryConfig::Kind::kDefault;
  c.rotary.theta *= exact::pow(alpha, dim / (dim - 2));
}

DecoderConfig hunyuan_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 290943,
                           .hidden_size = 4096,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 2048,
                           .norm_eps = 1e-5});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = c.attention.norm_rotated = true;
  c.attention.q_norm_name = "query_layernorm";
  c.attention.k_norm_name = "key_layernorm";
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  apply_alpha(config, c);
  return c;
}

constexpr GgufName kHunyuanGgufNames[] = {
    {"self_attn.query_layernorm", "attn_q_norm"},
    {"self_attn.key_layernorm", "attn_k_norm"},
};

const RegisteredFamily kHunyuan(
    {.model_type = "hunyuan_v1_dense",
     .help = "Hunyuan's dense models: norms on q and k after rotary embedding",
     .config = &hunyuan_config,
     .causal_lm = "HunYuanDenseV1ForCausalLM",
     .sequence_classification = "HunYuanDenseV1ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "hunyuan-dense", .names = kHunyuanGgufNames}});

}  // namespace
}  // namespace temper::models
