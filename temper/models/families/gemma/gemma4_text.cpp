// Gemma 4's language model: norms before and after attention and MLP, and on queries, keys and
// values; layers without a window have heads of another size, of which a quarter rotates; the last
// layers share the keys and values of the last one of their kind before; each layer adds an
// embedding of its own for each token (p). Experts, where there are some, stand beside the MLP
// (gemma4_experts.cpp).
//   h = x + n2 o(attend(rotate(nq q(n1 x)), rotate(nk k(n1 x)), normed v(n1 x)))
//   h = h + n4 down(gelu(gate(n3 h)) * up(n3 h))
//   y = scalar (h + n5 projection(gelu(gate_p(h)) * p))
#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/models/config_values.h"
#include "temper/models/families/gemma/gemma4.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/nn/weights/row_tiles.h"

namespace temper::models {
namespace {

const Gemma4Config& own(const DecoderConfig& c) { return static_cast<const Gemma4Config&>(*c.own); }

// factor x.
at::Tensor scaled(const at::Tensor& x, double factor) {
  return ops::add_scaled(at::zeros_like(x), x, factor);
}

// What a layer adds of its own embedding.
struct LayerInput : nn::Module {
  LayerInput(nn::Module& block, const DecoderConfig& c)
      : Module(block, Module::Unlisted()),
        gate(block, "per_layer_input_gate", c.hidden_size, own(c).layer_width, false,
             c.initializer_range),
        projection(block, "per_layer_projection", own(c).layer_width, c.hidden_size, false,
                   c.initializer_range),
        norm(block, "post_per_layer_input_norm", c.hidden_size, c.attention.norm_eps) {
    gate.set_role(nn::Role::kMlp);
    projection.set_role(nn::Role::kMlp);
  }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& p, ops::Activation activation,
                     const nn::Context& context) {
    const at::Tensor gated = gate.forward(h, context);
    return norm.forward(projection.forward(ops::LinearInput::gated(gated, p, activation), context));
  }
  nn::Linear gate, projection;
  nn::RmsNorm norm;
};

class Gemma4Block : public nn::Module {
 public:
  Gemma4Block(nn::Module& parent, std::string name, const DecoderConfig& c, size_t layer,
              std::shared_ptr<nn::Rotary> rotary)
      : Module(parent, std::move(name)),
        self_attn(*this, "self_attn", own(c).attention_of(c, layer), own(c).key_layer[layer],
                  std::move(rotary)),
        mlp(*this, "mlp", c.hidden_size, own(c).mlp_width(c, layer), false, c.activation,
            c.initializer_range),
        input_layernorm(*this, "input_layernorm", c.hidden_size, c.attention.norm_eps),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size,
                                 c.attention.norm_eps),
        pre_feedforward_layernorm(*this, "pre_feedforward_layernorm", c.hidden_size,
                                  c.attention.norm_eps),
        post_feedforward_layernorm(*this, "post_feedforward_layernorm", c.hidden_size,
                                   c.attention.norm_eps),
        layer_scalar(*this, "layer_scalar", {1}, {nn::Init::Kind::kOnes, 0}),
        shares_(shares(c, layer)),
        activation_(c.activation) {
    layer_scalar.set_constant();
    if (own(c).layer_width > 0) layer_input_.emplace(*this, c);
    if (c.sparse) experts_.emplace(*this, c, static_cast<int64_t>(layer));
    set_runs_as_unit();
  }

  // x and the layer's embedding (where it has one), then the keys and values that it shares (where
  // it does); gives x, then its own keys and values (where it has any).
  nn::Tensors forward(const nn::Tensors& in, const nn::Context& context) {
    nn::Attention::KeysAndValues kv;
    if (shares_) kv = {in[in.size() - 2], in[in.size() - 1]};
    const at::Tensor attended = self_attn.forward(input_layernorm.input(in[0]), context, &kv);
    nn::Tensors rows{ops::add_scaled(in[0], post_attention_layernorm.forward(attended))};
    if (layer_input_) rows.push_back(in[1]);
    const nn::RowFunction feed_rows = [this](const nn::Tensors& of, const nn::Context& of_rows) {
      return feed(of, of_rows);
    };
    nn::Tensors out{experts_ ? feed(rows, context)
                             : nn::run_in_tiles(feeders(), rows, context, feed_rows)};
    if (!shares_) out.insert(out.end(), {kv.k, kv.v});
    return out;
  }

  nn::Attention self_attn;
  nn::GatedMlp mlp;
  nn::RmsNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm,
      post_feedforward_layernorm;
  nn::Parameter layer_scalar;

 private:
  // From rows of h after attention, and of the layer's embedding where there is one.
  at::Tensor feed(const nn::Tensors& rows, const nn::Context& context) {
    at::Tensor fed = mlp.forward(pre_feedforward_layernorm.input(rows[0]), context);
    if (experts_) fed = experts_->forward(rows[0], fed, context);
    at::Tensor h = ops::add_scaled(rows[0], post_feedforward_layernorm.forward(fed));
    if (layer_input_)
      h = ops::add_scaled(h, layer_input_->forward(h, rows[1], activation_, context));
    return scaled(h, layer_scalar.value().item<double>());
  }
  // What feed() reads parameters of, without experts.
  std::vector<nn::Module*> feeders() {
    std::vector<nn::Module*> found{&mlp, &pre_feedforward_layernorm, &post_feedforward_layernorm};
    if (layer_input_)
      found.insert(found.end(),
                   {&layer_input_->gate, &layer_input_->projection, &layer_input_->norm});
    return found;
  }
  static bool shares(const DecoderConfig& c, size_t layer) {
    return own(c).key_layer[layer] != static_cast<int64_t>(layer);
  }

  bool shares_;
  ops::Activation activation_;
  std::optional<LayerInput> layer_input_;
  std::optional<Gemma4Experts> experts_;
};

// The layers' embeddings of each token, and what they take from its first embedding.
struct LayerEmbeddings : nn::Module {
  LayerEmbeddings(nn::Module& body, const DecoderConfig& c)
      : Module(body, Module::Unlisted()),
        width(own(c).layer_width),
        image_token(own(c).image_token),
        padding_token(own(c).padding_token),
        embed(body, "embed_tokens_per_layer", own(c).layer_vocab_size, width * c.num_hidden_layers,
              c.initializer_range, std::sqrt(static_cast<double>(width) / 2)),
        projection(body, "per_layer_model_projection", c.hidden_size, width * c.num_hidden_layers,
                   false, c.initializer_range),
        // Of the projection / sqrt(hidden_size): the norm divides it out, but for its eps.
        norm(body, "per_layer_projection_norm", width,
             c.attention.norm_eps * static_cast<double>(c.hidden_size)) {
    projection.set_role(nn::Role::kMlp);
  }

  // (norm(projection(x)) + sqrt(width) embed(token)) / sqrt(2), [N, layers * width]. Noise and
  // external rows are in x alone.
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor projected = projection.forward(x, context);
    const at::Tensor normed = norm.forward(projected.view({-1, width})).view(projected.sizes());
    return ops::add_scaled(embed.of_tokens(without_images(context)), normed, std::sqrt(0.5));
  }

  nn::Context without_images(const nn::Context& context) const {
    const std::vector<int32_t>& tokens = context.forest->tokens;
    const auto image = static_cast<int32_t>(image_token);
    if (std::find(tokens.begin(), tokens.end(), image) == tokens.end()) return context;
    nn::Context padded = context;
    auto forest = std::make_shared<Forest>(*context.forest);
    std::replace(forest->tokens.begin(), forest->tokens.end(), image,
                 static_cast<int32_t>(padding_token));
    padded.forest = forest;
    return padded;
  }

  int64_t width, image_token, padding_token;
  nn::Embedding embed;
  nn::Linear projection;
  nn::RmsNorm norm;
};

class Gemma4Decoder : public Backbone {
 public:
  explicit Gemma4Decoder(const DecoderConfig& c)
      : Backbone(c),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size, c.initializer_range,
                     c.embedding_scale),
        layers(*this, "layers"),
        norm(*this, "norm", c.hidden_size, c.attention.norm_eps),
        key_layer_(own(c).key_layer) {
    const auto global = std::make_shared<nn::Rotary>(c.rotary, own(c).global.head_dim),
               local = std::make_shared<nn::Rotary>(*c.local_rotary, c.attention.head_dim);
    for (size_t i = 0; i < c.window.size(); ++i)
      layers.emplace(c, i, c.window[i] > 0 ? local : global);
    if (own(c).layer_width > 0) layer_embeddings_.emplace(*this, c);
  }

  at::Tensor forward(const nn::Context& context) override {
    at::Tensor x = embed_tokens.forward(context);
    nn::Context inner = context;
    inner.rows = nullptr;
    const at::Tensor of_layers =
        layer_embeddings_ ? layer_embeddings_->forward(x, inner) : at::Tensor();
    std::vector<nn::Tensors> keys(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      if (context.observe) (*context.observe)(x);
      nn::Tensors in{x};
      if (layer_embeddings_)
        in.push_back(of_layers
                         .narrow(1, static_cast<int64_t>(i) * layer_embeddings_->width,
                                 layer_embeddings_->width)
                         .contiguous());
      const auto from = static_cast<size_t>(key_layer_[i]);
      if (from != i) in.insert(in.end(), keys[from].begin(), keys[from].end());
      nn::Tensors out = nn::run_unit(
          layers[i], in, context.adapters(), context.recompute,
          [block = &layers[i], inner](const nn::Tensors& given) {
            return block->forward(given, inner);
          },
          context.inputs);
      x = out[0];
      keys[i].assign(out.begin() + 1, out.end());
    }
    if (context.observe) (*context.observe)(x);
    return norm.forward(x);
  }

  nn::Attention::Heads attention_heads(int64_t layer, const at::Tensor& x,
                                       const nn::Context& context) override {
    check(key_layer(layer) == layer, "layer ", layer, " ", why_no_attention_maps(layer));
    Gemma4Block& block = layers[static_cast<size_t>(layer)];
    return block.self_attn.heads(block.input_layernorm.input(x), context);
  }
  std::string why_no_attention_maps(int64_t layer) const override {
    const int64_t keys = key_layer(layer);
    return keys == layer ? "" : str("shares the keys and values of layer ", keys);
  }
  ops::AttentionSpec attention_spec(int64_t layer) const override {
    return layers[static_cast<size_t>(layer)].self_attn.spec();
  }
  int64_t key_layer(int64_t layer) const override { return key_layer_[static_cast<size_t>(layer)]; }
  nn::Embedding& embedding() override { return embed_tokens; }

  nn::Embedding embed_tokens;
  nn::ModuleList<Gemma4Block> layers;
  nn::RmsNorm norm;

 private:
  std::optional<LayerEmbeddings> layer_embeddings_;
  std::vector<int64_t> key_layer_;
};

// For each layer the last one of its kind, with or without a window, before the last
// num_kv_shared_layers; its own before these.
std::vector<int64_t> key_layers(const HfConfig& config, const DecoderConfig& c) {
  const auto layers = static_cast<size_t>(c.num_hidden_layers);
  const double shared = config.number("num_kv_shared_layers", 0);
  if (shared < 0 || shared >= static_cast<double>(layers))
    config.fail("num_kv_shared_layers", str("found ", shared, ", expected less than ", layers));
  const size_t own_keys = layers - static_cast<size_t>(shared);
  std::vector<int64_t> from;
  for (size_t i = 0; i < layers; ++i) {
    size_t source = std::min(i, own_keys - 1);
    while (i >= own_keys && source > 0 && (c.window[source] > 0) != (c.window[i] > 0)) --source;
    if ((c.window[source] > 0) != (c.window[i] > 0))
      config.fail("num_kv_shared_layers",
                  str("no layer of the kind of layer ", i, " has keys that it could share"));
    from.push_back(static_cast<int64_t>(source));
  }
  return from;
}

// Heads of layers without a window: per_layer_config of transformers 5, or keys of their own.
nn::AttentionConfig global_attention(const HfConfig& config, const DecoderConfig& c) {
  nn::AttentionConfig a = c.attention;
  a.head_dim = config.integer("global_head_dim", 512);
  a.keys_are_values = config.boolean("attention_k_eq_v", false);
  if (a.keys_are_values)
    a.num_kv_heads = config.integer("num_global_key_value_heads", a.num_kv_heads);
  const auto listed = config.json().find("per_layer_config");
  if (listed == config.json().end() || !listed->is_object()) return a;
  for (size_t i = 0; i < c.window.size(); ++i) {
    if (c.window[i] > 0) continue;
    const auto of_layer = listed->find(std::to_string(i));
    if (of_layer == listed->end()) continue;
    const HfConfig part = HfConfig::parse(
        [&] {
          Json json = *of_layer;
          json["model_type"] = config.model_type();
          return json;
        }(),
        config.where() + ": `per_layer_config`");
    a.head_dim = part.integer("head_dim", c.attention.head_dim);
    a.num_kv_heads = part.integer("num_key_value_heads", c.attention.num_kv_heads);
  }
  return a;
}

void read_rotary(const HfConfig& config, DecoderConfig& c) {
  if (config.has("rope_scaling"))
    config.fail("rope_scaling", "expected rope_parameters, with an object for each kind of layer");
  const HfConfig all = filled(config, "rope_parameters",
                              {{"sliding_attention", {{"rope_theta", 10000}}},
                               {"full_attention",
                                {{"rope_type", "proportional"},
                                 {"partial_rotary_factor", 0.25},
                                 {"rope_theta", 1000000}}}});
  c.local_rotary = all.rotary(10000, c.max_position_embeddings, "sliding_attention");
  c.rotary = all.rotary(1000000, c.max_position_embeddings, "full_attention", 1.0);
  using Kind = nn::RotaryConfig::Kind;
  if (c.rotary.kind == Kind::kDefault) c.rotary.share = 1;  // partial_rotary_factor is not read
  if (c.rotary.kind != Kind::kProportional && c.rotary.share != 1)
    config.fail("partial_rotary_factor", "is supported with `rope_type` proportional alone");
}

DecoderConfig gemma4_text_config(const HfConfig& config) {
  DecoderConfig c(config, {.vocab_size = 262144,
                           .hidden_size = 2304,
                           .intermediate_size = 9216,
                           .num_hidden_layers = 30,
                           .num_attention_heads = 8,
                           .num_key_value_heads = 4,
                           .head_dim = 256,
                           .max_position_embeddings = 131072,
                           .tie_word_embeddings = true,
                           .activation_key = "hidden_activation",
                           .activation = "gelu_pytorch_tanh"});
  if (config.text("use_bidirectional_attention", "vision") != "vision")
    config.fail("use_bidirectional_attention", "is not supported");
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  c.final_soft_cap = soft_cap(config, "final_logit_softcapping", 0);
  c.attention.qkv_bias = c.attention.o_bias = config.boolean("attention_bias", false);
  c.attention.qk_norm = c.attention.norm_values = true;
  c.attention.scale = 1;
  c.window = windows_of(config, c.num_hidden_layers, config.integer("sliding_window", 512),
                        [](int64_t layer) { return (layer + 1) % 6 != 0; });
  c.window.back() = 0;
  read_rotary(config, c);
  auto of_gemma4 = std::make_shared<Gemma4Config>();
  of_gemma4->global = global_attention(config, c);
  of_gemma4->key_layer = key_layers(config, c);
  of_gemma4->layer_vocab_size = config.integer("vocab_size_per_layer_input", 262144);
  of_gemma4->layer_width = config.number("hidden_size_per_layer_input", 256) == 0
                               ? 0
                               : config.integer("hidden_size_per_layer_input", 256);
  of_gemma4->wide_shared_mlp = config.boolean("use_double_wide_mlp", false);
  if (config.has("image_token_id")) of_gemma4->image_token = config.integer("image_token_id", 1);
  if (config.has("pad_token_id"))
    of_gemma4->padding_token = static_cast<int64_t>(config.number("pad_token_id", 0));
  c.own = std::move(of_gemma4);
  if (config.boolean("enable_moe_block", false)) read_gemma4_experts(config, c);
  return c;
}

// Files may hold projections of keys and values of layers that have none.
void read_gemma4(TensorMap& tensors, const HfConfig& config) {
  unwrap_language_model(tensors, config);
  read_experts(tensors, {});
  const std::vector<int64_t> from = own(gemma4_text_config(config)).key_layer;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != static_cast<int64_t>(i))
      for (const char* name :
           {"k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias", "k_norm.weight"})
        tensors.erase(str("model.layers.", i, ".self_attn.", name));
}

void write_gemma4(NamedTensors& tensors) { write_experts(tensors, ExpertForm::kStacked, {}); }

std::unique_ptr<Backbone> make_gemma4(const DecoderConfig& c) {
  return std::make_unique<Gemma4Decoder>(c);
}

const RegisteredFamily kGemma4({.model_type = "gemma4_text",
                                .help = "Gemma 4, also of a `gemma4`: shared keys and values, an "
                                        "embedding for each layer, experts",
                                .config = &gemma4_text_config,
                                .make = &make_gemma4,
                                .causal_lm = "Gemma4ForCausalLM",
                                .sanitize = &read_gemma4,
                                .restore = &write_gemma4,
                                .gguf = gemma4_gguf()});

}  // namespace
}  // namespace temper::models
