// Gemma (arXiv 2403.08295): norms multiply by 1 + weight, embeddings are scaled by sqrt(hidden), a
// GeGLU.
#include "temper/models/gemma.h"

#include <cmath>

#include "temper/base/error.h"
#include "temper/nn/recompute.h"

namespace temper::models {

GemmaConfig::GemmaConfig(const HfConfig& c)
    : vocab_size(c.integer("vocab_size")),
      hidden_size(c.integer("hidden_size")),
      intermediate_size(c.integer("intermediate_size")),
      num_hidden_layers(c.integer("num_hidden_layers")),
      num_attention_heads(c.integer("num_attention_heads")),
      num_key_value_heads(c.integer("num_key_value_heads", num_attention_heads)),
      head_dim(c.integer("head_dim", 256)),
      rms_norm_eps(c.number("rms_norm_eps", 1e-6)),
      initializer_range(c.number("initializer_range", 0.02)),
      tie_word_embeddings(c.boolean("tie_word_embeddings", true)),
      attention_bias(c.boolean("attention_bias", false)),
      activation(c.activation("hidden_activation", "gelu_pytorch_tanh")),
      rotary(c.rotary(10000, "full_attention")),
      attention_scale(1.0 /
                      std::sqrt(c.number("query_pre_attn_scalar", static_cast<double>(head_dim)))),
      sliding(static_cast<size_t>(num_hidden_layers), false) {
  if (num_attention_heads % num_key_value_heads != 0)
    c.fail("num_key_value_heads",
           temper::str(num_attention_heads, " heads are no multiple of ", num_key_value_heads));
  if (c.boolean("use_bidirectional_attention", false))
    c.fail("use_bidirectional_attention", "is not supported");
}

namespace {

struct Block : nn::Module {
  Block(nn::Module& parent, std::string name, const GemmaConfig& c, int64_t layer,
        std::shared_ptr<nn::Rotary> rotary)
      : Module(parent, std::move(name)),
        self_attn(*this, "self_attn",
                  {.hidden_size = c.hidden_size,
                   .num_heads = c.num_attention_heads,
                   .num_kv_heads = c.num_key_value_heads,
                   .head_dim = c.head_dim,
                   .qkv_bias = c.attention_bias,
                   .o_bias = c.attention_bias,
                   .qk_norm = c.qk_norm,
                   .norm_one_plus = true,
                   .norm_eps = c.rms_norm_eps,
                   .scale = c.attention_scale,
                   .soft_cap = c.attention_soft_cap,
                   .window = c.sliding[static_cast<size_t>(layer)] ? c.sliding_window : 0,
                   .deviation = c.initializer_range},
                  layer, std::move(rotary)),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.activation,
            c.initializer_range),
        input_layernorm(*this, "input_layernorm", c.hidden_size, c.rms_norm_eps, true),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size, c.rms_norm_eps,
                                 true) {
    if (!c.post_norms) return;
    pre_feedforward_layernorm.emplace(*this, "pre_feedforward_layernorm", c.hidden_size,
                                      c.rms_norm_eps, true);
    post_feedforward_layernorm.emplace(*this, "post_feedforward_layernorm", c.hidden_size,
                                       c.rms_norm_eps, true);
  }

  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor attended = self_attn.forward(input_layernorm.input(x), context);
    if (!pre_feedforward_layernorm) {
      const at::Tensor h = ops::add_scaled(x, attended);
      return ops::add_scaled(h, mlp.forward(post_attention_layernorm.input(h), context));
    }
    const at::Tensor h = ops::add_scaled(x, post_attention_layernorm.forward(attended));
    const at::Tensor fed = mlp.forward(pre_feedforward_layernorm->input(h), context);
    return ops::add_scaled(h, post_feedforward_layernorm->forward(fed));
  }

  nn::Attention self_attn;
  nn::GatedMlp mlp;
  nn::RmsNorm input_layernorm, post_attention_layernorm;
  std::optional<nn::RmsNorm> pre_feedforward_layernorm, post_feedforward_layernorm;
};

struct Body : nn::Module {
  Body(nn::Module& parent, const GemmaConfig& c)
      : Module(parent, "model"),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size, c.initializer_range,
                     static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)))),
        layers(*this, "layers"),
        norm(*this, "norm", c.hidden_size, c.rms_norm_eps, true) {
    const auto global = std::make_shared<nn::Rotary>(c.rotary, c.head_dim);
    const auto local =
        c.local_rotary ? std::make_shared<nn::Rotary>(*c.local_rotary, c.head_dim) : global;
    for (int64_t i = 0; i < c.num_hidden_layers; ++i)
      layers.emplace(c, i, c.sliding[static_cast<size_t>(i)] ? local : global);
  }
  nn::Embedding embed_tokens;
  nn::ModuleList<Block> layers;
  nn::RmsNorm norm;
};

struct Gemma : CausalLM {
  explicit Gemma(const GemmaConfig& c) : model(*this, c), soft_cap(c.final_soft_cap) {
    if (!c.tie_word_embeddings)
      lm_head.emplace(*this, "lm_head", c.hidden_size, c.vocab_size, false, c.initializer_range);
  }
  at::Tensor forward(const nn::Context& context) override {
    at::Tensor x = model.embed_tokens.forward(context);
    for (auto& layer : model.layers)
      x = nn::run_block(*layer, x, context, [block = layer.get(), context](const at::Tensor& in) {
        return block->forward(in, context);
      });
    return model.norm.forward(x);
  }
  nn::Parameter& head() override { return lm_head ? lm_head->weight : model.embed_tokens.weight; }
  ops::AttentionSpec attention_spec() override { return model.layers[0].self_attn.spec(); }
  double final_soft_cap() const override { return soft_cap; }

  Body model;
  std::optional<nn::Linear> lm_head;
  double soft_cap;
};

}  // namespace

std::unique_ptr<CausalLM> make_gemma(const GemmaConfig& config) {
  return std::make_unique<Gemma>(config);
}

std::unique_ptr<CausalLM> make_gemma(const HfConfig& config) {
  GemmaConfig c(config);
  c.attention_scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  // Its key is hidden_act, and the official files say "gelu" there where they mean the tanh form.
  c.activation = config.activation("hidden_act", "gelu_pytorch_tanh");
  if (c.activation == ops::Activation::kGelu) c.activation = ops::Activation::kGeluTanh;
  return make_gemma(c);
}

}  // namespace temper::models
