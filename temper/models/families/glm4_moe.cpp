// GLM-4.5's mixtures of experts (arXiv 2508.06471): half of each head rotates; after the first
// layers experts that are chosen by sigmoids and a bias, as in DeepSeek-V3, beside one that every
// token goes through.
#include <nlohmann/json.hpp>

#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

DecoderConfig glm4_moe_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 151552,
                           .hidden_size = 4096,
                           .intermediate_size = 10944,
                           .num_hidden_layers = 46,
                           .num_attention_heads = 96,
                           .num_key_value_heads = 8,
                           .max_position_embeddings = 131072,
                           .norm_eps = 1e-5});
  c.attention.qkv_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = config.boolean("use_qk_norm", false);
  c.rotary = config.rotary(10000, c.max_position_embeddings, "", 0.5);
  SparseConfig sparse{.router = read_router(config, 128, 8),
                      .width = config.integer("moe_intermediate_size", 1408),
                      .layers = {},
                      .correction = true};
  sparse.shared_width = sparse.width * config.integer("n_shared_experts", 1);
  read_sigmoid_router(config, sparse.router);
  dense_first(config, 1, c.num_hidden_layers, sparse);
  set_sparse(c, std::move(sparse));
  return c;
}

void read_glm4_moe(TensorMap& tensors, const HfConfig& config) {
  drop_later_layers(tensors, config.integer("num_hidden_layers", 46));
  read_experts(tensors, {});
}
void write_glm4_moe(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kSingle, {}); }

void read_glm4_moe_gguf(const GgufSource& source, Json& config) {
  read_gguf_sigmoids(source, config);
  config["use_qk_norm"] = source.any_block_has("attn_q_norm.weight");
}

const RegisteredFamily kGlm4Moe(
    {.model_type = "glm4_moe",
     .help = "GLM-4.5: a sigmoid router with a bias, shared experts, dense first layers",
     .paper = "arXiv 2508.06471",
     .config = &glm4_moe_config,
     .causal_lm = "Glm4MoeForCausalLM",
     .sanitize = &read_glm4_moe,
     .restore = &write_glm4_moe,
     .gguf = GgufArchitecture{.name = "glm4moe",
                              .post_norm = true,
                              .weights = GgufArchitecture::Weights::kByKey,
                              .sigmoids = true,
                              .dense_first = true,
                              .read = &read_glm4_moe_gguf}});

}  // namespace
}  // namespace temper::models
