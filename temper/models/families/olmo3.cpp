// OLMo 3: OLMo 2 (olmo2.cpp) with three layers that attend to a window to one that does not; the
// positions of the latter alone are scaled.
//   h = x + n1 o(attend(rotate(nq q(x)), rotate(nk k(x)), v(x)))
//   y = h + n2 down(silu(gate(h)) * up(h))
#include <nlohmann/json.hpp>

#include "temper/models/families/common.h"
#include "temper/models/gguf/gguf_config.h"

namespace temper::models {
namespace {

DecoderConfig olmo3_config(const HfConfig& config) {
  DecoderConfig c = olmo_config(config);
  c.window = windows_of(config, c.num_hidden_layers, window_or_none(config, 4096),
                        [](int64_t layer) { return (layer + 1) % 4 != 0; });
  c.rotary = config.rotary(500000, c.max_position_embeddings, "full_attention");
  c.local_rotary = local_rotary(config, 500000, c.max_position_embeddings);
  return c;
}

void read_olmo3_gguf(const GgufSource& source, Json& config) {
  const Json theta = config["rope_theta"];
  Json whole = config.value("rope_scaling", Json({{"rope_type", "default"}}));
  whole["rope_theta"] = theta;
  const double windowed = source.real("rope.freq_base_swa", theta.get<double>());
  config["rope_parameters"] = {
      {"full_attention", std::move(whole)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", windowed}}}};
  config.erase("rope_theta");
  config.erase("rope_scaling");
}

const RegisteredFamily kOlmo3({.model_type = "olmo3",
                               .help = "OLMo 3: OLMo 2 with windows",
                               .config = &olmo3_config,
                               .causal_lm = "Olmo3ForCausalLM",
                               .sequence_classification = "Olmo3ForSequenceClassification",
                               .sanitize = &unwrap_language_model,
                               .gguf = GgufArchitecture{.name = "olmo2",
                                                        .needs_head = true,
                                                        .own_head_size = false,
                                                        .post_norm = true,
                                                        .windows = true,
                                                        .window_period = 4,
                                                        .window_optional = true,
                                                        .plain_in_window = true,
                                                        .given = "attention.sliding_window",
                                                        .read = &read_olmo3_gguf}});

}  // namespace
}  // namespace temper::models
