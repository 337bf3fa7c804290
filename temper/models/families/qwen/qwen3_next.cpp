// Qwen3-Next: as Qwen 3.5 (qwen3_5_text.cpp), but that a delta net has two input layers, which join
// queries, keys, values and gates by key head, and that the MLP is a mixture of experts beside one
// that every token goes through:
//   y = h + Σ w_e expert_e(n2 h) + sigmoid(g n2 h) shared(n2 h)
#include "temper/models/families/qwen/delta_net.h"

namespace temper::models {
namespace {

DecoderConfig qwen3_next_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151936,
                           .hidden_size = 2048,
                           .intermediate_size = 5632,
                           .num_hidden_layers = 48,
                           .num_attention_heads = 16,
                           .num_key_value_heads = 2,
                           .head_dim = 256,
                           .max_position_embeddings = 32768});
  set_delta_net(config, c, /*joined=*/true);
  SparseConfig sparse{.router = read_router(config, 512, 10, "num_experts"),
                      .layers = sparse_layers(config, c.num_hidden_layers)};
  sparse.router.normalize = config.boolean("norm_topk_prob", true);
  set_shared_experts(config, c, std::move(sparse));
  return c;
}

const RegisteredFamily kQwen3Next(
    {.model_type = "qwen3_next",
     .help = "Qwen3-Next: gated delta nets with joined projections, experts beside an MLP",
     .config = &qwen3_next_config,
     .causal_lm = "Qwen3NextForCausalLM",
     .sequence_classification = "Qwen3NextForSequenceClassification",
     .sanitize = &read_delta_net_experts,
     .restore = &write_delta_net_experts,
     .gguf = delta_net_gguf("qwen3next", /*joined=*/true)});

}  // namespace
}  // namespace temper::models
