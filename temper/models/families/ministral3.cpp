// Ministral 3, also within a multimodal `mistral3`: Mistral whose queries grow with the position,
// as Llama 4's do (nn::RotaryConfig::query_scale_beta), on yarn.
//   q = (1 + beta ln(1 + floor(position / original length))) rotate(q(n1 x))
//   h = x + o(attend(q, rotate(k(n1 x)), v(n1 x)))
//   y = h + down(silu(gate(n2 h)) * up(n2 h))
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/config_values.h"
#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

// transformers' where config.json has no rope_parameters.
HfConfig with_ministral_yarn(const HfConfig& config) {
  return filled(config, "rope_parameters",
                {{"rope_type", "yarn"},
                 {"rope_theta", 1000000},
                 {"factor", 16},
                 {"original_max_position_embeddings", 16384},
                 {"mscale", 1},
                 {"mscale_all_dim", 1},
                 {"llama_4_scaling_beta", 0.1}});
}

DecoderConfig ministral3_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 131072,
                           .hidden_size = 4096,
                           .intermediate_size = 14336,
                           .num_hidden_layers = 34,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 8,
                           .head_dim = 128,
                           .max_position_embeddings = 262144,
                           .norm_eps = 1e-5});
  c.window.assign(c.window.size(), window_or_none(config, 0));
  const HfConfig all = with_ministral_yarn(config);
  c.rotary = all.rotary(10000, c.max_position_embeddings);
  const HfConfig rope = *all.rope_section();
  c.rotary.query_scale_beta = rope.number("llama_4_scaling_beta", 0);
  if (c.rotary.kind != nn::RotaryConfig::Kind::kYarn)
    c.rotary.original_max_position_embeddings =
        number_above(rope, "original_max_position_embeddings", 0,
                     static_cast<double>(c.max_position_embeddings));
  return c;
}

void add_temperature(const HfConfig&, const DecoderConfig& c, GgufForm& form) {
  if (c.rotary.query_scale_beta == 0) return;
  form.set_real("attention.temperature_scale", c.rotary.query_scale_beta);
  form.set_number("rope.scaling.original_context_length",
                  std::llround(c.rotary.original_max_position_embeddings));
}

void read_temperature(const GgufSource& source, Json& config) {
  Json rope = config.value("rope_scaling", Json::object());
  config.erase("rope_scaling");
  rope["rope_theta"] = config["rope_theta"];
  if (!rope.contains("rope_type")) rope["rope_type"] = "default";
  if (source.has("rope.scaling.original_context_length"))
    rope["original_max_position_embeddings"] =
        source.number("rope.scaling.original_context_length");
  rope["llama_4_scaling_beta"] = source.real("attention.temperature_scale", 0);
  config["rope_parameters"] = std::move(rope);
  config.erase("rope_theta");
}

const RegisteredFamily kMinistral3(
    {.model_type = "ministral3",
     .help = "Ministral 3, also of a `mistral3`: queries grow with the position",
     .config = &ministral3_config,
     .causal_lm = "Ministral3ForCausalLM",
     .sequence_classification = "Ministral3ForSequenceClassification",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "mistral3",
                              .interleaved = true,
                              .rope_factors = true,
                              .add = &add_temperature,
                              .read = &read_temperature}});

}  // namespace
}  // namespace temper::models
