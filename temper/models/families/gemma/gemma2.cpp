// Gemma 2 (arXiv 2408.00118): soft caps on scores and logits, every other layer attends to a
// window, norms before and after.
#include <cmath>

#include "temper/models/config_values.h"
#include "temper/models/families/common.h"

namespace temper::models {
namespace {

DecoderConfig gemma2_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 256000,
                           .hidden_size = 2304,
                           .intermediate_size = 9216,
                           .num_hidden_layers = 26,
                           .num_attention_heads = 8,
                           .num_key_value_heads = 4,
                           .head_dim = 256,
                           .max_position_embeddings = 8192,
                           .tie_word_embeddings = true,
                           .activation_key = "hidden_activation",
                           .activation = "gelu_pytorch_tanh"});
  apply_gemma_defaults(config, c);
  c.norms = kNormsAround;
  c.attention.scale = 1.0 / std::sqrt(number_above(config, "query_pre_attn_scalar", 0, 256));
  c.attention.soft_cap = soft_cap(config, "attn_logit_softcapping", 50);
  c.final_soft_cap = soft_cap(config, "final_logit_softcapping", 30);
  c.window = windows_of(config, c.num_hidden_layers, config.integer("sliding_window", 4096),
                        [](int64_t layer) { return layer % 2 == 0; });
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kGemma2(
    {.model_type = "gemma2",
     .help = "Gemma 2: soft caps, alternating windows, pre and post norms",
     .paper = "arXiv 2408.00118",
     .config = &gemma2_config,
     .causal_lm = "Gemma2ForCausalLM",
     .sequence_classification = "Gemma2ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "gemma2",
                              .gelu = true,
                              .own_head = false,
                              .post_norm = true,
                              .soft_caps = true,
                              .windows = true,
                              .window_period = 2,
                              .exception_layers = 46}});

}  // namespace
}  // namespace temper::models
