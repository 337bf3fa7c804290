// Phi-3 and Phi-4 (arXiv 2404.14219, 2412.08905): Llama whose queries, keys and values, and whose
// gate and up projections, are one layer each; a part of each head rotates; longrope.
//   q, k, v = split(qkv(n1 x))
//   h = x + o(attend(rotate(q), rotate(k), v))
//   g, u = split(gate_up(n2 h))
//   y = h + down(silu(g) * u)
#include <nlohmann/json.hpp>

#include "temper/models/config_values.h"
#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_config.h"

namespace temper::models {
namespace {

DecoderConfig phi3_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 32064,
                           .hidden_size = 3072,
                           .intermediate_size = 8192,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .max_position_embeddings = 4096,
                           .norm_eps = 1e-5});
  c.attention.joined_qkv = c.joined_mlp = true;
  c.window.assign(c.window.size(), window_or_none(config, 0));
  // The length is a key of the config itself, and transformers' class has one of its own.
  c.rotary = filled(config, "original_max_position_embeddings", 4096)
                 .rotary(10000, c.max_position_embeddings, "", 1.0);
  return c;
}

// Where a file has factors, cosines and sines are scaled as it says; where it has none, the length
// that the model was trained for is that of its context.
void read_phi3_gguf(const GgufSource&, Json& config) {
  if (!config.contains("original_max_position_embeddings"))
    config["original_max_position_embeddings"] = config["max_position_embeddings"];
}

const RegisteredFamily kPhi3(
    {.model_type = "phi3",
     .help = "Phi-3 and Phi-4: joined projections, longrope",
     .paper = "arXiv 2404.14219",
     .config = &phi3_config,
     .causal_lm = "Phi3ForCausalLM",
     .sequence_classification = "Phi3ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{
         .name = "phi3", .longrope = true, .own_head_size = false, .read = &read_phi3_gguf}});

}  // namespace
}  // namespace temper::models
