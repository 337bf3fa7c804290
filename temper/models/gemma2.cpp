// Gemma 2 (arXiv 2408.00118): soft caps on scores and logits, every other layer attends to a
// window, norms before and after.
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/gemma.h"

namespace temper::models {

std::unique_ptr<CausalLM> make_gemma2(const HfConfig& config) {
  GemmaConfig c(config);
  c.post_norms = true;
  c.attention_scale = 1.0 / std::sqrt(config.number("query_pre_attn_scalar", 256));
  c.attention_soft_cap = config.number("attn_logit_softcapping", 50);
  c.final_soft_cap = config.number("final_logit_softcapping", 30);
  if (config.json().contains("attn_logit_softcapping") && !config.has("attn_logit_softcapping"))
    c.attention_soft_cap = 0;
  if (config.json().contains("final_logit_softcapping") && !config.has("final_logit_softcapping"))
    c.final_soft_cap = 0;
  c.sliding_window = config.integer("sliding_window", 4096);
  std::vector<bool> alternating;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) alternating.push_back(i % 2 == 0);
  c.sliding = config.sliding_layers(c.num_hidden_layers, alternating);
  return make_gemma(c);
}

}  // namespace temper::models
