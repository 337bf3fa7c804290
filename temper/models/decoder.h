// What the decoder families have in common: the keys of their configs, and the body that runs
// blocks one after the other. Blocks are DecoderBlock (decoder_block.cpp); a family that needs
// another one brings its own to Decoder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/family.h"
#include "temper/nn/blocks.h"
#include "temper/nn/latent_attention.h"
#include "temper/nn/state_layers.h"
#include "temper/nn/unit.h"

namespace temper::models {

// What transformers' config class of a family fills in where config.json says nothing.
struct DecoderDefaults {
  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
  int64_t num_key_value_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings;
  bool tie_word_embeddings = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
};

// The norms of a block, by their names; null: there is none at that place.
struct BlockNorms {
  const char* before_mixer = "input_layernorm";  // the mixer: attention, or a layer with a state
  const char* after_mixer = nullptr;             // of what it adds to the residual stream
  const char* before_feed = "post_attention_layernorm";  // of what the MLP or the experts read
  const char* after_feed = nullptr;
};
inline constexpr BlockNorms kNormsAfter{nullptr, "post_attention_layernorm", nullptr,
                                        "post_feedforward_layernorm"};
inline constexpr BlockNorms kNormsAround{"input_layernorm", "post_attention_layernorm",
                                         "pre_feedforward_layernorm", "post_feedforward_layernorm"};

struct SparseConfig;
// What a family with a body of its own reads besides: its file derives from it.
struct OwnConfig {
  virtual ~OwnConfig() = default;
};

struct DecoderConfig : ModelConfig {
  // The keys that all families share. Throws ConfigError.
  DecoderConfig(const HfConfig& config, const DecoderDefaults& defaults);

  int64_t intermediate_size = 0;
  nn::AttentionConfig attention;  // of every layer, but for its window
  std::vector<int64_t> window;    // by layer: tokens that it attends to; 0: all
  std::vector<bool> rotates;      // by layer: whether it has rotary positions, or none
  bool mlp_bias = false;
  bool joined_mlp = false;     // nn::GatedMlp
  bool norm_centered = false;  // nn::RmsNorm
  ops::Activation activation = ops::Activation::kSilu;
  double embedding_scale = 1;  // embeddings are multiplied by it
  double residual_scale = 1;   // what attention and MLP add to the residual stream, too
  BlockNorms norms;
  bool parallel = false;           // the MLP reads what attention reads, not what it gives
  const char* norm_name = "norm";  // of the final norm
  const char* mlp_name = "mlp";
  nn::MlpNames mlp_layers;

  std::shared_ptr<const OwnConfig> own;

  nn::RotaryConfig rotary;
  std::optional<nn::RotaryConfig> local_rotary;  // of layers with a window, where it is another
  int64_t rotary_dim = 0;  // features of a head that both are made for; 0: all

  std::shared_ptr<const SparseConfig> sparse = nullptr;  // a mixture of experts (sparse_mlp.h)
  std::optional<nn::LatentConfig> latent;                // nn::LatentAttention
  // By layer: whether it carries a state in place of attention, and what makes such a layer, under
  // its name in a block.
  std::vector<bool> has_state;
  std::function<std::unique_ptr<nn::StateLayer>(nn::Module& block, int64_t layer)> make_state;

  nn::AttentionConfig attention_of(int64_t layer) const;
};

// The key sliding_window; 0 where it is null, `usual` where it is missing.
int64_t window_or_none(const HfConfig& config, int64_t usual);
// DecoderConfig::window where layer_types, or else the family's rule, says which layers have one.
std::vector<int64_t> windows_of(const HfConfig& config, int64_t layers, int64_t window,
                                const std::function<bool(int64_t layer)>& fallback);

// DecoderConfig::has_state: layer_types where the config has them, which call a layer with a state
// `state_type` and others full_attention, else by the family's `fallback`. Throws ConfigError.
std::vector<bool> state_layers(const HfConfig& config, int64_t layers, const char* state_type,
                               const std::function<bool(int64_t layer)>& fallback);

// DecoderConfig::local_rotary of families whose layers without a window rotate in another way. The
// older form of their configs has one rope_scaling, which is not that of the layers with a window.
nn::RotaryConfig local_rotary(const HfConfig& config, double theta, int64_t max_positions);

// x [N, hidden_size], what a body's block of this number gives, with what external rows add to it
// (ExternalRows::deep).
at::Tensor add_deep_rows(const at::Tensor& x, const std::vector<ExternalRows>& rows, int64_t block);

// A block's attention; null: it carries a state.
inline nn::Attention* attention_in(nn::Attention& layer) { return &layer; }
inline const nn::Attention* attention_in(const nn::Attention& layer) { return &layer; }
inline nn::Attention* attention_in(const std::unique_ptr<nn::Attention>& layer) {
  return layer.get();
}

// Embedding, blocks, final norm. A block maps [N, hidden_size] to the same; it has the constructor
// and forward of DecoderBlock, an nn::Attention named self_attn, and an nn::RmsNorm named
// input_layernorm where one comes before it. One that says kLeavesOutRows is given Context::rows as
// the last one, computes these and leaves the others zero (nn/weights/read_rows.h). Layers without
// positions are given no rotary embedding.
template <class Block>
class Decoder : public Backbone {
 public:
  explicit Decoder(const DecoderConfig& c)
      : Backbone(c),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size, c.initializer_range,
                     c.embedding_scale),
        layers(*this, "layers"),
        norm(*this, c.norm_name, c.hidden_size, c.attention.norm_eps, c.attention.norm_one_plus,
             c.norm_centered) {
    const int64_t rotated = c.rotary_dim > 0 ? c.rotary_dim : c.attention.head_dim;
    const auto rotary = std::make_shared<nn::Rotary>(c.rotary, rotated);
    const auto local =
        c.local_rotary ? std::make_shared<nn::Rotary>(*c.local_rotary, rotated) : rotary;
    for (size_t i = 0; i < c.window.size(); ++i) {
      const auto& of_kind = c.window[i] > 0 ? local : rotary;
      layers.emplace(c, static_cast<int64_t>(i), c.rotates[i] ? of_kind : nullptr);
      layers[i].set_runs_as_unit();
    }
  }

  at::Tensor forward(const nn::Context& context) override {
    at::Tensor x = embed_tokens.forward(context);
    nn::Context inner = context;
    inner.rows = nullptr;
    int64_t number = 0;
    for (auto& layer : layers) {
      // Attention reads every row of its input: only the last block's result is anybody else's.
      const bool last = layer.get() == &layers[layers.size() - 1] && !context.observe &&
                        requires { Block::kLeavesOutRows; };
      x = nn::run_block(*layer, x, context,
                        [block = layer.get(), in_block = last ? context : inner](
                            const at::Tensor& in) { return block->forward(in, in_block); });
      x = add_deep_rows(x, context.forest->rows, number++);
    }
    if (context.observe) (*context.observe)(x);
    return norm.forward(x);
  }
  nn::Attention::Heads attention_heads(int64_t layer, const at::Tensor& x,
                                       const nn::Context& context) override {
    Block& block = layers[static_cast<size_t>(layer)];
    nn::Attention* const attention = attention_in(block.self_attn);
    check(attention, "layer ", layer, " ", why_no_attention_maps(layer));
    if constexpr (requires { block.mixer_input(x); })
      return attention->heads(block.mixer_input(x), context);
    else if constexpr (requires { block.input_layernorm; })
      return attention->heads(block.input_layernorm.input(x), context);
    else
      return attention->heads(ops::LinearInput::plain(x), context);
  }
  std::string why_no_attention_maps(int64_t layer) const override {
    return attention_in(layers[static_cast<size_t>(layer)].self_attn)
               ? ""
               : "carries a state in place of attention";
  }
  ops::AttentionSpec attention_spec(int64_t layer) const override {
    const auto attention = [this](size_t i) { return attention_in(layers[i].self_attn); };
    if (const nn::Attention* own = attention(static_cast<size_t>(layer))) return own->spec();
    // A layer with a state: as one with attention, without its keys.
    ops::AttentionSpec spec;
    for (size_t i = layers.size(); i-- > 0;)
      if (attention(i)) spec = attention(i)->spec();
    spec.num_kv_heads = 0;
    spec.q_norm = spec.k_norm = at::Tensor();
    return spec;
  }
  std::vector<int64_t> state_sizes(int64_t layer) const override {
    if constexpr (requires(const Block& block) { block.state_sizes(); })
      return layers[static_cast<size_t>(layer)].state_sizes();
    else
      return {};
  }
  nn::Embedding& embedding() override { return embed_tokens; }

  nn::Embedding embed_tokens;
  nn::ModuleList<Block> layers;
  nn::RmsNorm norm;
};

// Family::make of a family whose body is of blocks of its own.
template <class Block>
std::unique_ptr<Backbone> make_decoder(const DecoderConfig& config) {
  return std::make_unique<Decoder<Block>>(config);
}

}  // namespace temper::models
