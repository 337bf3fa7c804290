// EXAONE 4 (arXiv 2507.11407): norms after attention and MLP alone, and on each head's query and
// key; where some layers have a window, the others have no positions.
//   h = x + n1 o(attend(r(nq q(x)), r(nk k(x)), v(x))), r: rotate, or of the latter layers nothing
//   y = h + n2 down(silu(gate(h)) * up(h))
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

DecoderConfig exaone4_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 102400,
                           .hidden_size = 4096,
                           .intermediate_size = 16384,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 32,
                           .max_position_embeddings = 2048,
                           .norm_eps = 1e-5});
  c.norms = kNormsAfter;
  c.attention.qk_norm = true;
  if (const int64_t window = window_or_none(config, 4096)) {
    c.window = windows_of(config, c.num_hidden_layers, window, [&](int64_t layer) {
      return (layer + 1) % config.integer("sliding_window_pattern", 4) != 0;
    });
    for (size_t i = 0; i < c.window.size(); ++i) c.rotates[i] = c.window[i] > 0;
  }
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kExaone4({.model_type = "exaone4",
                                 .help = "EXAONE 4: post norms, windows, layers without positions",
                                 .paper = "arXiv 2507.11407",
                                 .config = &exaone4_config,
                                 .causal_lm = "Exaone4ForCausalLM",
                                 .sequence_classification = "Exaone4ForSequenceClassification",
                                 .sanitize = &unwrap_language_model,
                                 .gguf = GgufArchitecture{.name = "exaone4",
                                                          .rope_factors = true,
                                                          .post_norm = true,
                                                          .windows = true,
                                                          .window_period = 4,
                                                          .window_layers = 64,
                                                          .window_rotates = true}});

}  // namespace
}  // namespace temper::models
