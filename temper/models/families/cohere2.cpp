// Command R7B and Command A (Cohere, arXiv 2504.00698): attention and MLP side by side behind one
// layer norm; three layers with a window, which rotate neighbouring pairs, to one without
// positions.
//   n = layer_norm(x)
//   y = x + o(attend(r(q(n)), r(k(n)), v(n))) + down(silu(gate(n)) * up(n))
//   logits = logit_scale head(layer_norm(y))
#include <nlohmann/json.hpp>

#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

DecoderConfig cohere2_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 256000,
                           .hidden_size = 8192,
                           .intermediate_size = 22528,
                           .num_hidden_layers = 40,
                           .num_attention_heads = 64,
                           .max_position_embeddings = 8192,
                           .tie_word_embeddings = true,
                           .norm_eps_key = "layer_norm_eps",
                           .norm_eps = 1e-5});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.norm_centered = c.parallel = true;
  c.norms.before_feed = nullptr;
  c.logit_scale = config.number("logit_scale", 0.0625);
  const int64_t pattern = config.integer("sliding_window_pattern", 4);
  c.window = windows_of(config, c.num_hidden_layers, window_or_none(config, 4096),
                        [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  for (size_t i = 0; i < c.window.size(); ++i) c.rotates[i] = c.window[i] > 0;
  c.rotary = config.rotary(10000, c.max_position_embeddings);
  c.rotary.interleaved = true;
  return c;
}

void add_cohere2_scale(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  if (c.logit_scale == 0) form.refuse(source, "logit_scale", "0");  // which it takes for none
  form.set_real("logit_scale", c.logit_scale);
}

void read_cohere2_gguf(const GgufSource& source, Json& config) {
  config.erase("rms_norm_eps");
  config["layer_norm_eps"] = source.real("attention.layer_norm_epsilon", 1e-5);
  config["logit_scale"] = source.real("logit_scale", 0.0625);
}

const RegisteredFamily kCohere2(
    {.model_type = "cohere2",
     .help = "Command R7B and A: attention beside the MLP, layer norms, layers without positions",
     .paper = "arXiv 2504.00698",
     .config = &cohere2_config,
     .causal_lm = "Cohere2ForCausalLM",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "cohere2",
                              .interleaved = true,
                              .own_head = false,
                              .own_head_size = false,
                              .windows = true,
                              .window_period = 4,
                              .window_rotates = true,
                              .add = &add_cohere2_scale,
                              .read = &read_cohere2_gguf}});

}  // namespace
}  // namespace temper::models
