// SmolLM3: Llama in which every fourth layer has no positions (Yang et al., arXiv 2501.18795).
//   h = x + o(attend(r(q(n1 x)), r(k(n1 x)), v(n1 x))), r: rotate, or of every fourth layer nothing
//   y = h + down(silu(gate(n2 h)) * up(n2 h))
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

// Those of no_rope_layers that are 1, or all but each no_rope_layer_interval-th.
std::vector<bool> rotated_layers(const HfConfig& config, int64_t layers) {
  std::vector<bool> rotates;
  const int64_t interval = config.integer("no_rope_layer_interval", 4);
  for (int64_t i = 0; i < layers; ++i) rotates.push_back((i + 1) % interval != 0);
  if (!config.has("no_rope_layers")) return rotates;
  const std::vector<double> listed = config.numbers("no_rope_layers");
  if (static_cast<int64_t>(listed.size()) < layers)
    config.fail("no_rope_layers", str("expected ", layers, " numbers, one for each layer"));
  for (size_t i = 0; i < rotates.size(); ++i) rotates[i] = listed[i] != 0;
  return rotates;
}

DecoderConfig smollm3_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 128256,
                           .hidden_size = 2048,
                           .intermediate_size = 11008,
                           .num_hidden_layers = 36,
                           .num_attention_heads = 16,
                           .num_key_value_heads = 4,
                           .max_position_embeddings = 32768,
                           .tie_word_embeddings = true});
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.mlp_bias = config.boolean("mlp_bias", false);
  c.rotates = rotated_layers(config, c.num_hidden_layers);
  // use_sliding_window says what layer_types are where they are missing, and nothing else.
  const bool slides = config.boolean("use_sliding_window", false);
  c.window = windows_of(config, c.num_hidden_layers, window_or_none(config, 0), [&](int64_t layer) {
    return slides && !c.rotates[static_cast<size_t>(layer)];
  });
  c.rotary = config.rotary(2000000, c.max_position_embeddings);
  return c;
}

const RegisteredFamily kSmolLm3(
    {.model_type = "smollm3",
     .help = "SmolLM3: every fourth layer without positions",
     .paper = "arXiv 2501.18795",
     .config = &smollm3_config,
     .causal_lm = "SmolLM3ForCausalLM",
     .sequence_classification = "SmolLM3ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "smollm3", .interleaved = true, .rotation_period = 4}});

}  // namespace
}  // namespace temper::models
