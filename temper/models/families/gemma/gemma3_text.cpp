// Gemma 3's language model (arXiv 2503.19786): five layers with a window to one without, each kind
// with its own rotary base, norms before and after, and on q and k.
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/config_values.h"
#include "temper/models/families/common.h"
#include "temper/models/gguf/gguf_config.h"

namespace temper::models {
namespace {

DecoderConfig gemma3_text_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 262208,
                           .hidden_size = 2304,
                           .intermediate_size = 9216,
                           .num_hidden_layers = 26,
                           .num_attention_heads = 8,
                           .num_key_value_heads = 4,
                           .head_dim = 256,
                           .max_position_embeddings = 131072,
                           .tie_word_embeddings = true,
                           .activation_key = "hidden_activation",
                           .activation = "gelu_pytorch_tanh"});
  apply_gemma_defaults(config, c);
  c.norms = kNormsAround;
  c.attention.qk_norm = true;
  c.attention.scale = 1.0 / std::sqrt(number_above(config, "query_pre_attn_scalar", 0, 256));
  c.final_soft_cap = soft_cap(config, "final_logit_softcapping", 0);
  if (config.multimodal() && c.final_soft_cap != 0)  // of which transformers' class reads none
    config.fail("final_logit_softcapping", "is not supported in a multimodal model");
  const int64_t pattern = config.integer("sliding_window_pattern", 6);
  c.window = windows_of(config, c.num_hidden_layers, config.integer("sliding_window", 4096),
                        [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  c.rotary = config.rotary(1000000, c.max_position_embeddings, "full_attention");
  c.local_rotary = local_rotary(config, number_above(config, "rope_local_base_freq", 0, 10000),
                                c.max_position_embeddings);
  return c;
}

void read_gemma3_gguf(const GgufSource& source, Json& config) {
  if (!source.has("rope.freq_base")) config["rope_theta"] = 1000000;
  config["rope_local_base_freq"] = source.real("rope.freq_base_swa", 10000);
}

const RegisteredFamily kGemma3(
    {.model_type = "gemma3_text",
     .help = "Gemma 3, also of a `gemma3`: five local layers to one global, two rotary bases",
     .paper = "arXiv 2503.19786",
     .config = &gemma3_text_config,
     .causal_lm = "Gemma3ForCausalLM",
     .sequence_classification = "Gemma3TextForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "gemma3",
                              .gelu = true,
                              .post_norm = true,
                              .windows = true,
                              .window_period = 6,
                              .window_optional = true,
                              .exception_layers = 62,
                              .read = &read_gemma3_gguf}});

}  // namespace
}  // namespace temper::models
