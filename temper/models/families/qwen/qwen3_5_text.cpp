// Qwen 3.5's dense language models: every fourth layer has attention with norms on queries and keys
// and a gated output, of whose heads a quarter rotates; the others a gated delta net. Norms
// multiply by 1 + weight, but for the delta net's.
//   h = x + out(silu(z(n1 x)) * norm(delta_rule(silu(conv(qkv(n1 x))), a(n1 x), b(n1 x))))
//   h = x + o(sigmoid(g(n1 x)) * attend(rotate(nq q(n1 x)), rotate(nk k(n1 x)), v(n1 x)))
//   y = h + down(silu(gate(n2 h)) * up(n2 h))
#include "temper/models/families/qwen/delta_net.h"

namespace temper::models {
namespace {

DecoderConfig qwen3_5_text_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 248320,
                           .hidden_size = 4096,
                           .intermediate_size = 12288,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 16,
                           .num_key_value_heads = 4,
                           .head_dim = 256,
                           .max_position_embeddings = 32768});
  set_delta_net(config, c, /*joined=*/false);
  return c;
}

const RegisteredFamily kQwen35(
    {.model_type = "qwen3_5_text",
     .help =
         "Qwen 3.5, also of a `qwen3_5`: gated delta nets, gated attention in every fourth layer",
     .config = &qwen3_5_text_config,
     .causal_lm = "Qwen3_5ForCausalLM",
     .sequence_classification = "Qwen3_5TextForSequenceClassification",
     .causal_lm_is_text_part = true,
     .sanitize = &unwrap_and_drop_drafts,
     .gguf = delta_net_gguf("qwen35", /*joined=*/false)});

}  // namespace
}  // namespace temper::models
