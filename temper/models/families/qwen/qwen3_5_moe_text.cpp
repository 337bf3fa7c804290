// Qwen 3.5's mixtures of experts: Qwen 3.5 (qwen3_5_text.cpp) with Qwen3-Next's experts
// (qwen3_next.cpp) in every layer.
#include "temper/models/families/qwen/delta_net.h"

namespace temper::models {
namespace {

DecoderConfig qwen3_5_moe_text_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 248320,
                           .hidden_size = 2048,
                           .intermediate_size = 512,
                           .num_hidden_layers = 40,
                           .num_attention_heads = 16,
                           .num_key_value_heads = 2,
                           .head_dim = 256,
                           .max_position_embeddings = 32768});
  set_delta_net(config, c, /*joined=*/false);
  SparseConfig sparse{.router = read_router(config, 256, 8, "num_experts"), .layers = {}};
  sparse.router.normalize = true;
  set_shared_experts(config, c, std::move(sparse));
  return c;
}

const RegisteredFamily kQwen35Moe(
    {.model_type = "qwen3_5_moe_text",
     .help = "Qwen 3.5's mixtures of experts, also of a `qwen3_5_moe`: gated delta nets",
     .config = &qwen3_5_moe_text_config,
     .causal_lm = "Qwen3_5MoeForCausalLM",
     .causal_lm_is_text_part = true,
     .sanitize = &read_delta_net_experts,
     .restore = &write_delta_net_experts,
     .gguf = delta_net_gguf("qwen35moe", /*joined=*/false)});

}  // namespace
}  // namespace temper::models
