// Granite 3's mixtures of experts (IBM; Shen et al., arXiv 2408.13359): Granite's four factors, and
// in place of the MLP experts whose weights are a softmax over the chosen ones.
#include <nlohmann/json.hpp>

#include "temper/models/families/common.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

DecoderConfig granitemoe_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 2048});
  apply_granite_factors(config, c);
  SparseConfig sparse{.router = read_router(config, 8, 2),
                      .width = c.intermediate_size,
                      .layers = {},
                      .module = "block_sparse_moe",
                      .gate = "router"};
  sparse.router.normalize = true;
  set_sparse(c, std::move(sparse));
  return c;
}

constexpr std::pair<const char*, const char*> kGraniteMoeNames[] = {
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"},
    {".block_sparse_moe.router.layer.weight", ".block_sparse_moe.router.weight"},
};

void read_granitemoe(TensorMap& tensors, const HfConfig&) {
  read_experts(tensors, kGraniteMoeNames);
}
void write_granitemoe(NamedTensors& tensors) {
  write_experts(tensors, ExpertForm::kStacked, kGraniteMoeNames);
}

constexpr GgufName kGraniteMoeGgufNames[] = {{"block_sparse_moe.router", "ffn_gate_inp"}};

void read_granitemoe_gguf(const GgufSource& source, Json& config) {
  read_granite_factors(source, config);
  read_gguf_experts(source, "num_local_experts", "intermediate_size", config);
}

const RegisteredFamily kGraniteMoe(
    {.model_type = "granitemoe",
     .help = "Granite 3's mixtures of experts: Granite's factors, a softmax over the chosen",
     .paper = "arXiv 2408.13359",
     .config = &granitemoe_config,
     .causal_lm = "GraniteMoeForCausalLM",
     .sanitize = &read_granitemoe,
     .restore = &write_granitemoe,
     .gguf = GgufArchitecture{.name = "granitemoe",
                              .interleaved = true,
                              .rope_factors = true,
                              .output_bias = true,
                              .scale_key = true,
                              .names = kGraniteMoeGgufNames,
                              .add = &add_granite_factors,
                              .read = &read_granitemoe_gguf}});

}  // namespace
}  // namespace temper::models
