// LFM2 (arXiv 2511.23404): layers of short convolutions, and some of attention with norms on
// queries and keys; norms before. With (B, C, u) = in_proj(n1 x):
//   h = x + out_proj(C * conv(B * u))                      in most layers
//   h = x + out_proj(attend(rotate(nq q(n1 x)), rotate(nk k(n1 x)), v(n1 x)))
//   y = h + w2(silu(w1(n2 h)) * w3(n2 h))
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/decoder.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

// block_auto_adjust_ff_dim: two thirds of it, times a factor, up to a multiple.
int64_t inner_width(const HfConfig& config, int64_t intermediate) {
  if (!config.boolean("block_auto_adjust_ff_dim", true)) return intermediate;
  double width = std::floor(2.0 * static_cast<double>(intermediate) / 3.0);
  if (config.is_null("block_ffn_dim_multiplier")) return static_cast<int64_t>(width);
  const double factor = config.number("block_ffn_dim_multiplier", 1.0);
  const auto multiple = static_cast<double>(config.integer("block_multiple_of", 256));
  width = std::ceil(std::floor(factor * width) / multiple) * multiple;
  if (!(width >= 1 && width <= INT32_MAX))
    config.fail("block_ffn_dim_multiplier", str("gives an MLP of ", width, " features"));
  return static_cast<int64_t>(width);
}

DecoderConfig lfm2_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 65536,
                           .hidden_size = 2560,
                           .intermediate_size = 12288,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 8,
                           .max_position_embeddings = 128000,
                           .tie_word_embeddings = true,
                           .norm_eps_key = "norm_eps",
                           .norm_eps = 1e-5});
  c.activation = ops::Activation::kSilu;  // whatever hidden_act says
  c.tie_word_embeddings = config.boolean("tie_embedding", c.tie_word_embeddings);
  c.intermediate_size = inner_width(config, config.integer("block_ff_dim", c.intermediate_size));
  c.attention.qk_norm = true;
  c.attention.q_norm_name = "q_layernorm";
  c.attention.k_norm_name = "k_layernorm";
  c.attention.o_proj_name = "out_proj";
  c.norm_name = "embedding_norm";
  c.rotary = config.rotary(1000000, c.max_position_embeddings);
  const std::vector<double> attends = config.numbers("full_attn_idxs");
  const bool all = !config.has("full_attn_idxs");
  c.has_state = state_layers(config, c.num_hidden_layers, "conv", [&](int64_t layer) {
    return !all &&
           std::find(attends.begin(), attends.end(), static_cast<double>(layer)) == attends.end();
  });
  const int64_t taps = config.integer("conv_L_cache", 3, ops::most_convolution_taps());
  const bool bias = config.boolean("conv_bias", false);
  c.make_state = [hidden = c.hidden_size, taps, bias, init_std = c.initializer_range](
                     nn::Module& block, int64_t layer) {
    return std::make_unique<nn::ShortConvolution>(block, "conv", layer, hidden, taps, bias,
                                                  init_std);
  };
  c.norms = {.before_mixer = "operator_norm", .before_feed = "ffn_norm"};
  c.mlp_name = "feed_forward";
  c.mlp_layers = {.gate = "w1", .up = "w3", .down = "w2"};
  return c;
}

constexpr GgufName kLfm2GgufNames[] = {
    {"model.embedding_norm.weight", "token_embd_norm.weight"},
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.out_proj", "attn_output"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},
};

// A layer without heads of keys is a convolution.
void add_convolutions(const HfConfig& source, const DecoderConfig& c, GgufForm& form) {
  if (source.boolean("conv_bias", false)) form.refuse(source, "conv_bias", "a bias");
  const int64_t taps = source.integer("conv_L_cache", 3, ops::most_convolution_taps());
  if (taps < 2) form.refuse(source, "conv_L_cache", "a convolution of one token");
  form.set_number("shortconv.l_cache", taps);
  std::vector<uint32_t> heads;
  for (const bool has_state : c.has_state)
    heads.push_back(has_state ? 0 : static_cast<uint32_t>(c.attention.num_kv_heads));
  form.set("attention.head_count_kv", GgufArray(std::move(heads)));
}

void read_lfm2_gguf(const GgufSource& source, Json& config) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  const std::vector<double> heads = source.by_layer("attention.head_count_kv", layers);
  Json types = Json::array();
  for (const double count : heads) types.push_back(count == 0 ? "conv" : "full_attention");
  config["layer_types"] = std::move(types);
  config["norm_eps"] = config["rms_norm_eps"];
  config.erase("rms_norm_eps");
  config["block_auto_adjust_ff_dim"] = false;
  config["block_ff_dim"] = config["intermediate_size"];
  config["tie_embedding"] = config["tie_word_embeddings"];
  config["conv_L_cache"] = source.number("shortconv.l_cache");
  config["conv_bias"] = source.any_block_has("shortconv.conv.bias");
}

const RegisteredFamily kLfm2(
    {.model_type = "lfm2",
     .help = "LFM2: short convolutions in most layers, attention in the others",
     .paper = "arXiv 2511.23404",
     .config = &lfm2_config,
     .causal_lm = "Lfm2ForCausalLM",
     .sanitize = &unwrap_language_model,
     .gguf = GgufArchitecture{.name = "lfm2",
                              .own_head_size = false,
                              .names = kLfm2GgufNames,
                              .add = &add_convolutions,
                              .read = &read_lfm2_gguf}});

}  // namespace
}  // namespace temper::models
