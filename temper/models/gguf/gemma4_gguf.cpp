// Gemma 4's language model as llama.cpp's architecture reads it.
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/families/gemma/gemma4.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

constexpr GgufName kGemma4GgufNames[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"router.proj", "ffn_gate_inp"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
};

// What the angles of pairs that do not rotate are divided by.
constexpr float kNothing = 1e30f;

// Layers that share keys read those of the last two layers that have their own: of the first of
// these where they have a window, else of the second. Some layer must have a window.
void refuse_other_layers(const HfConfig& source, const DecoderConfig& c, const Gemma4Config& own,
                         const GgufForm& form) {
  bool windows = false;
  int64_t own_keys = 0;
  for (size_t i = 0; i < c.window.size(); ++i) {
    windows = windows || c.window[i] > 0;
    own_keys += own.key_layer[i] == static_cast<int64_t>(i);
  }
  if (!windows)
    form.refuse(source, source.has("layer_types") ? "layer_types" : "num_hidden_layers",
                "no layer with a window");
  for (size_t i = static_cast<size_t>(own_keys); i < c.window.size(); ++i)
    if (own.key_layer[i] != own_keys - (c.window[i] > 0 ? 2 : 1))
      form.refuse(source, "num_kv_shared_layers",
                  str("layer ", i, " shares the keys of layer ", own.key_layer[i], ", not of ",
                      own_keys - (c.window[i] > 0 ? 2 : 1)));
}

void add_gemma4_layers(const DecoderConfig& c, const Gemma4Config& own, GgufForm& form) {
  std::vector<uint32_t> windowed, heads, widths;
  uint32_t shared = 0;
  for (size_t i = 0; i < c.window.size(); ++i) {
    const nn::AttentionConfig a = own.attention_of(c, i);
    windowed.push_back(a.window > 0);
    heads.push_back(static_cast<uint32_t>(a.num_kv_heads));
    widths.push_back(static_cast<uint32_t>(own.mlp_width(c, i)));
    shared += a.shares_keys;
  }
  form.set_number("attention.shared_kv_layers", shared);
  if (own.global.num_kv_heads != c.attention.num_kv_heads)
    form.set("attention.head_count_kv", GgufArray(std::move(heads)));
  if (own.wide_shared_mlp && shared > 0)
    form.set("feed_forward_length", GgufArray(std::move(widths)));
}

// Layers without a window divide the angles of their pairs by rope_freqs. Those that do not rotate
// are divided by so much that nothing is left.
void add_gemma4_rope(const DecoderConfig& c, const Gemma4Config& own, GgufForm& form) {
  const bool proportional = c.rotary.kind == nn::RotaryConfig::Kind::kProportional;
  const int64_t size = own.global.head_dim;
  const nn::Rotary checked(c.rotary, size);  // its size is a config's, and bounds what follows
  const double part = static_cast<double>(size) * c.rotary.share;
  form.set_number("rope.dimension_count", proportional ? size : static_cast<int64_t>(part));
  form.set_number("rope.dimension_count_swa", c.attention.head_dim);
  form.rope_factors.assign(static_cast<size_t>(size / 2), 1.0f);
  if (!proportional) return;
  for (size_t i = 0; i < form.rope_factors.size(); ++i)
    form.rope_factors[i] = static_cast<int64_t>(i) < static_cast<int64_t>(part / 2)
                               ? static_cast<float>(c.rotary.factor)
                               : kNothing;
}

void add_gemma4(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  const auto& own = static_cast<const Gemma4Config&>(*c.own);
  refuse_other_layers(source, c, own, form);
  if (own.layer_width > 0 && own.layer_vocab_size != c.vocab_size)
    form.refuse(source, "vocab_size_per_layer_input",
                str(own.layer_vocab_size, " tokens, and `vocab_size` is ", c.vocab_size));
  form.set_number("embedding_length_per_layer_input", own.layer_width);
  form.set_real("final_logit_softcapping", c.final_soft_cap);  // where it is missing, 30
  form.set_number("attention.key_length", own.global.head_dim);
  form.set_number("attention.value_length", own.global.head_dim);
  form.set_number("attention.key_length_swa", c.attention.head_dim);
  form.set_number("attention.value_length_swa", c.attention.head_dim);
  form.parts.push_back({"layer_scalar", "layer_output_scale.weight"});
  add_gemma4_layers(c, own, form);
  add_gemma4_rope(c, own, form);
}

Json read_gemma4_rope(const GgufSource& source, const Json& config) {
  const std::vector<float> factors = source.values_of("rope_freqs.weight");
  Json whole = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
  const auto rotated =
      std::count_if(factors.begin(), factors.end(), [](float factor) { return factor < kNothing; });
  if (rotated > 0 && (static_cast<size_t>(rotated) < factors.size() || factors[0] != 1)) {
    whole["rope_type"] = "proportional";
    whole["partial_rotary_factor"] =
        static_cast<double>(rotated) / static_cast<double>(factors.size());
    if (factors[0] != 1) whole["factor"] = factors[0];
  }
  const double windowed = source.real("rope.freq_base_swa", 10000);
  return {{"full_attention", std::move(whole)},
          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", windowed}}}};
}

// Heads of layers with a window and of the others, and the widths of layers that share keys.
void read_gemma4_layers(const GgufSource& source, const std::vector<bool>& windowed, Json& config) {
  const auto layers = static_cast<int64_t>(windowed.size());
  const std::vector<double> heads = source.by_layer("attention.head_count_kv", layers),
                            widths = source.by_layer("feed_forward_length", layers);
  bool keys_are_values = false;
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (!heads.empty())
      config[windowed[i] ? "num_key_value_heads" : "num_global_key_value_heads"] =
          static_cast<int64_t>(heads[i]);
    const std::string block = str("blk.", i, ".");
    keys_are_values = keys_are_values || (source.has_tensor(block + "attn_k.weight") &&
                                          !source.has_tensor(block + "attn_v.weight"));
  }
  config["attention_k_eq_v"] = keys_are_values;
  config["num_kv_shared_layers"] = source.number("attention.shared_kv_layers", 0);
  config["use_double_wide_mlp"] = !widths.empty() && widths.back() == 2 * widths[0];
}

void read_gemma4_gguf(const GgufSource& source, Json& config) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  read_gemma4_layers(source, gguf_windows(source, layers, 0), config);
  config["global_head_dim"] = source.number("attention.key_length");
  config["head_dim"] = source.number("attention.key_length_swa");
  config["hidden_size_per_layer_input"] = source.number("embedding_length_per_layer_input", 0);
  config["vocab_size_per_layer_input"] = config["vocab_size"];
  const double cap = source.real("final_logit_softcapping", 30);
  config["final_logit_softcapping"] = cap == 0 ? Json() : Json(cap);
  config["rope_parameters"] = read_gemma4_rope(source, config);
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["enable_moe_block"] = source.number("expert_count", 0) > 0;
  if (!config["enable_moe_block"].get<bool>()) return;
  read_gguf_experts(source, "num_experts", "moe_intermediate_size", config);
  config["top_k_experts"] = config["num_experts_per_tok"];
  config.erase("num_experts_per_tok");
}

}  // namespace

GgufArchitecture gemma4_gguf() {
  return {.name = "gemma4",
          .character_model = "gemma4",
          .proportional = true,
          .gelu = true,
          .own_scale = true,
          .post_norm = true,
          .windows = true,
          .names = kGemma4GgufNames,
          .add = &add_gemma4,
          .read = &read_gemma4_gguf};
}

}  // namespace temper::models
