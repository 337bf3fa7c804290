// OLMoE (Muennighoff et al., arXiv 2409.02060): Llama with norms over all queries and all keys of a
// token, and in place of the MLP eight of 64 experts.
#include <nlohmann/json.hpp>

#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

DecoderConfig olmoe_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 50304,
                           .hidden_size = 2048,
                           .intermediate_size = 2048,
                           .num_hidden_layers = 16,
                           .num_attention_heads = 16,
                           .max_position_embeddings = 4096,
                           .norm_eps = 1e-5});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = c.attention.qk_norm_is_whole = true;
  if (config.has("clip_qkv"))
    config.fail("clip_qkv", "queries, keys and values that are clipped are not supported");
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  SparseConfig sparse{
      .router = read_router(config, 64, 8), .width = c.intermediate_size, .layers = {}};
  sparse.router.normalize = config.boolean("norm_topk_prob", false);
  set_sparse(c, std::move(sparse));
  return c;
}

void read_olmoe(TensorMap& tensors, const HfConfig&) { read_experts(tensors, {}); }
void write_olmoe(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kSingle, {}); }

void read_olmoe_gguf(const GgufSource& source, Json& config) {
  read_gguf_experts(source, "num_experts", "intermediate_size", config);
  config["norm_topk_prob"] = false;
}

const RegisteredFamily kOlmoe({.model_type = "olmoe",
                               .help = "OLMoE: eight of 64 experts, norms over all q and k",
                               .paper = "arXiv 2409.02060",
                               .config = &olmoe_config,
                               .causal_lm = "OlmoeForCausalLM",
                               .sanitize = &read_olmoe,
                               .restore = &write_olmoe,
                               .gguf = GgufArchitecture{
                                   .name = "olmoe",
                                   .needs_head = true,
                                   .own_head_size = false,
                                   .fewer_kv_heads = false,
                                   .weights = GgufArchitecture::Weights::kPlain,
                                   .read = &read_olmoe_gguf}});

}  // namespace
}  // namespace temper::models
