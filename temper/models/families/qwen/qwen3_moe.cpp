// Qwen3's mixtures of experts (arXiv 2505.09388, section 2): Qwen3's attention, and in place of the
// MLP the experts with the largest probabilities of a softmax.
#include <nlohmann/json.hpp>

#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

DecoderConfig qwen3_moe_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151936,
                           .hidden_size = 2048,
                           .intermediate_size = 6144,
                           .num_hidden_layers = 24,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 4,
                           .max_position_embeddings = 32768});
  c.attention.qk_norm = true;
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  if (config.boolean("use_sliding_window", false) && !config.is_null("sliding_window"))
    c.window.assign(c.window.size(), config.integer("sliding_window", 4096));
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  SparseConfig sparse{.router = read_router(config, 128, 8),
                      .width = config.integer("moe_intermediate_size", 768),
                      .layers = sparse_layers(config, c.num_hidden_layers)};
  sparse.router.normalize = config.boolean("norm_topk_prob", false);
  set_sparse(c, std::move(sparse));
  return c;
}

void read_qwen3_moe(TensorMap& tensors, const HfConfig& config) {
  unwrap_language_model(tensors, config);
  read_experts(tensors, {});
}
void write_qwen3_moe(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kSingle, {}); }

void read_qwen3_moe_gguf(const GgufSource& source, Json& config) {
  read_gguf_experts(source, "num_experts", "moe_intermediate_size", config);
  config["norm_topk_prob"] = true;
}

const RegisteredFamily kQwen3Moe(
    {.model_type = "qwen3_moe",
     .help = "Qwen3's mixtures of experts: norms on q and k, a softmax router",
     .paper = "arXiv 2505.09388",
     .config = &qwen3_moe_config,
     .causal_lm = "Qwen3MoeForCausalLM",
     .sequence_classification = "Qwen3MoeForSequenceClassification",
     .sanitize = &read_qwen3_moe,
     .restore = &write_qwen3_moe,
     .gguf = GgufArchitecture{.name = "qwen3moe", .read = &read_qwen3_moe_gguf}});

}  // namespace
}  // namespace temper::models
