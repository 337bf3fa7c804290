#include "temper/models/decoder.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/config_values.h"

namespace temper::models {
namespace {

// Far more than any model has; what a damaged config asks for would take all memory.
constexpr int64_t kMostLayers = 10000;

nn::AttentionConfig read_attention(const HfConfig& c, const DecoderDefaults& defaults,
                                   const ModelConfig& model) {
  nn::AttentionConfig a{.hidden_size = model.hidden_size};
  a.num_heads = c.integer("num_attention_heads", defaults.num_attention_heads);
  const bool as_heads = defaults.num_key_value_heads == 0 || c.is_null("num_key_value_heads");
  a.num_kv_heads =
      c.integer("num_key_value_heads", as_heads ? a.num_heads : defaults.num_key_value_heads);
  const bool divided = defaults.head_dim == 0 || c.is_null("head_dim");
  a.head_dim = c.integer("head_dim", divided ? model.hidden_size / a.num_heads : defaults.head_dim);
  a.norm_eps = number_from(c, defaults.norm_eps_key, 0, defaults.norm_eps);
  a.scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
  a.init_std = model.initializer_range;
  if (a.num_heads % a.num_kv_heads != 0)
    c.fail("num_key_value_heads",
           temper::str(a.num_heads, " heads are not a multiple of ", a.num_kv_heads,
                       c.has("num_key_value_heads") ? "" : ", which is this family's default"));
  return a;
}

}  // namespace

DecoderConfig::DecoderConfig(const HfConfig& c, const DecoderDefaults& d) {
  check_causal(c);
  vocab_size = c.integer("vocab_size", d.vocab_size);
  hidden_size = c.integer("hidden_size", d.hidden_size);
  intermediate_size = c.integer("intermediate_size", d.intermediate_size);
  num_hidden_layers = c.integer("num_hidden_layers", d.num_hidden_layers, kMostLayers);
  max_position_embeddings = c.integer("max_position_embeddings", d.max_position_embeddings);
  initializer_range = number_from(c, "initializer_range", 0, 0.02);
  tie_word_embeddings = c.boolean("tie_word_embeddings", d.tie_word_embeddings);
  attention = read_attention(c, d, *this);
  window.assign(static_cast<size_t>(num_hidden_layers), 0);
  rotates.assign(static_cast<size_t>(num_hidden_layers), true);
  has_state.assign(static_cast<size_t>(num_hidden_layers), false);
  activation = c.activation(d.activation_key, d.activation);
}

nn::AttentionConfig DecoderConfig::attention_of(int64_t layer) const {
  nn::AttentionConfig of_layer = attention;
  of_layer.window = window[static_cast<size_t>(layer)];
  return of_layer;
}

int64_t window_or_none(const HfConfig& config, int64_t usual) {
  return config.is_null("sliding_window") ? 0 : config.integer("sliding_window", usual);
}

std::vector<int64_t> windows_of(const HfConfig& config, int64_t layers, int64_t window,
                                const std::function<bool(int64_t layer)>& fallback) {
  std::vector<int64_t> windows;
  for (const bool sliding : config.sliding_layers(layers, fallback))
    windows.push_back(sliding ? window : 0);
  return windows;
}

nn::RotaryConfig local_rotary(const HfConfig& config, double theta, int64_t max_positions) {
  return config.rotary(theta, max_positions, "sliding_attention");
}

at::Tensor add_deep_rows(const at::Tensor& x, const std::vector<ExternalRows>& rows,
                         int64_t block) {
  std::vector<ops::RowsTerm> terms;
  for (const ExternalRows& r : rows)
    if (r.deep.defined() && block < r.deep.size(0))
      terms.push_back({r.deep.select(0, block).narrow(0, r.first, r.count).to(x.device()),
                       {r.begin, r.begin + r.count}});
  return terms.empty() ? x : ops::add_scaled_rows(x, terms);
}

std::vector<bool> state_layers(const HfConfig& config, int64_t layers, const char* state_type,
                               const std::function<bool(int64_t layer)>& fallback) {
  std::vector<bool> has_state;
  if (!config.has("layer_types")) {
    for (int64_t i = 0; i < layers; ++i) has_state.push_back(fallback(i));
    return has_state;
  }
  const Json& types = config.json().at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers)
    config.fail("layer_types", str("expected a list of ", layers, " names, one for each layer"));
  for (const Json& type : types) {
    if (type != state_type && type != "full_attention")
      config.fail("layer_types",
                  str("found ", dump_json(type), ", expected ", state_type, " or full_attention"));
    has_state.push_back(type == state_type);
  }
  return has_state;
}

}  // namespace temper::models
