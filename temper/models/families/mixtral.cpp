// Mixtral (Jiang et al., arXiv 2401.04088): Mistral's attention, and in place of the MLP two of
// eight experts, whose weights are a softmax over these two.
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

DecoderConfig mixtral_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .intermediate_size = 14336,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 8,
                           .max_position_embeddings = 131072,
                           .norm_eps = 1e-5});
  if (config.has("sliding_window"))
    c.window.assign(c.window.size(), config.integer("sliding_window", 4096));
  c.rotary = config.rotary(1e6, c.max_position_embeddings);
  if (config.number("router_jitter_noise", 0) != 0)
    config.fail("router_jitter_noise", "noise on the router's input is not supported; expected 0");
  SparseConfig sparse{
      .router = read_router(config, 8, 2), .width = c.intermediate_size, .layers = {}};
  sparse.router.normalize = true;
  set_sparse(c, std::move(sparse));
  return c;
}

constexpr std::pair<const char*, const char*> kMixtralNames[] = {
    {".block_sparse_moe.", ".mlp."},
    {".w1.weight", ".gate_proj.weight"},
    {".w3.weight", ".up_proj.weight"},
    {".w2.weight", ".down_proj.weight"},
};

void read_mixtral(TensorMap& tensors, const HfConfig&) { read_experts(tensors, kMixtralNames); }
void write_mixtral(NamedTensors& tensors) {
  write_experts(tensors, ExpertForm::kSingle, kMixtralNames);
}

void read_mixtral_gguf(const GgufSource& source, Json& config) {
  read_gguf_experts(source, "num_local_experts", "intermediate_size", config);
}

const RegisteredFamily kMixtral({.model_type = "mixtral",
                                 .help = "Mixtral: two of eight experts",
                                 .paper = "arXiv 2401.04088",
                                 .config = &mixtral_config,
                                 .causal_lm = "MixtralForCausalLM",
                                 .sequence_classification = "MixtralForSequenceClassification",
                                 .sanitize = &read_mixtral,
                                 .restore = &write_mixtral,
                                 .gguf = GgufArchitecture{.name = "llama",
                                                          .interleaved = true,
                                                          .rope_factors = true,
                                                          .given = "expert_count",
                                                          .read = &read_mixtral_gguf}});

}  // namespace
}  // namespace temper::models
