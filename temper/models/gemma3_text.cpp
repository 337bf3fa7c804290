// Gemma 3's language model (arXiv 2503.19786): five layers with a window to one without, each kind
// with its own rotary base.
#include <cmath>

#include "temper/models/gemma.h"

namespace temper::models {

std::unique_ptr<CausalLM> make_gemma3_text(const HfConfig& config) {
  GemmaConfig c(config);
  c.post_norms = true;
  c.qk_norm = true;
  c.attention_scale = 1.0 / std::sqrt(config.number("query_pre_attn_scalar", 256));
  c.attention_soft_cap = config.number("attn_logit_softcapping", 0);
  c.final_soft_cap = config.number("final_logit_softcapping", 0);
  c.rotary = config.rotary(1000000, "full_attention");
  if (config.has("rope_parameters")) {
    c.local_rotary =
        config.rotary(config.number("rope_local_base_freq", 10000), "sliding_attention");
  } else {
    // The older form gives the local base by its own key, and rope_scaling is that of the global
    // layers.
    c.local_rotary = nn::RotaryConfig{};
    c.local_rotary->theta = config.number("rope_local_base_freq", 10000);
  }
  c.sliding_window = config.integer("sliding_window", 4096);
  const int64_t pattern = config.integer("sliding_window_pattern", 6);
  std::vector<bool> fallback;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) fallback.push_back((i + 1) % pattern != 0);
  c.sliding = config.sliding_layers(c.num_hidden_layers, fallback);
  return make_gemma(c);
}

}  // namespace temper::models
