// Llama (Touvron et al., arXiv 2302.13971; Llama 3, arXiv 2407.21783), and with two switches Qwen2
// and Qwen3.
#include "temper/models/llama.h"

#include <cmath>

#include "temper/base/error.h"
#include "temper/nn/recompute.h"

namespace temper::models {

LlamaConfig::LlamaConfig(const HfConfig& c)
    : vocab_size(c.integer("vocab_size")),
      hidden_size(c.integer("hidden_size")),
      intermediate_size(c.integer("intermediate_size")),
      num_hidden_layers(c.integer("num_hidden_layers")),
      num_attention_heads(c.integer("num_attention_heads")),
      num_key_value_heads(c.integer("num_key_value_heads", num_attention_heads)),
      head_dim(c.integer("head_dim", hidden_size / num_attention_heads)),
      rms_norm_eps(c.number("rms_norm_eps", 1e-6)),
      initializer_range(c.number("initializer_range", 0.02)),
      tie_word_embeddings(c.boolean("tie_word_embeddings", false)),
      attention_bias(c.boolean("attention_bias", false)),
      mlp_bias(c.boolean("mlp_bias", false)),
      activation(c.activation("hidden_act", "silu")),
      rotary(c.rotary(10000)) {
  if (num_attention_heads % num_key_value_heads != 0)
    c.fail("num_key_value_heads",
           temper::str(num_attention_heads, " heads are no multiple of ", num_key_value_heads));
  if (c.boolean("use_sliding_window", false)) {
    sliding_window = c.integer("sliding_window", 4096);
    const int64_t from = c.integer("max_window_layers", 28);
    std::vector<bool> fallback;
    for (int64_t i = 0; i < num_hidden_layers; ++i) fallback.push_back(i >= from);
    sliding = c.sliding_layers(num_hidden_layers, fallback);
  } else {
    sliding.assign(static_cast<size_t>(num_hidden_layers), false);
  }
}

namespace {

nn::AttentionConfig attention_config(const LlamaConfig& c, int64_t layer) {
  return {.hidden_size = c.hidden_size,
          .num_heads = c.num_attention_heads,
          .num_kv_heads = c.num_key_value_heads,
          .head_dim = c.head_dim,
          .qkv_bias = c.attention_bias || c.qkv_bias,
          .o_bias = c.attention_bias,
          .qk_norm = c.qk_norm,
          .norm_eps = c.rms_norm_eps,
          .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim)),
          .window = c.sliding[static_cast<size_t>(layer)] ? c.sliding_window : 0,
          .deviation = c.initializer_range};
}

struct Block : nn::Module {
  Block(nn::Module& parent, std::string name, const LlamaConfig& c, int64_t layer,
        std::shared_ptr<nn::Rotary> rotary)
      : Module(parent, std::move(name)),
        self_attn(*this, "self_attn", attention_config(c, layer), layer, std::move(rotary)),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, c.mlp_bias, c.activation,
            c.initializer_range),
        input_layernorm(*this, "input_layernorm", c.hidden_size, c.rms_norm_eps),
        post_attention_layernorm(*this, "post_attention_layernorm", c.hidden_size, c.rms_norm_eps) {
  }

  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor h = ops::add_scaled(x, self_attn.forward(input_layernorm.input(x), context));
    return ops::add_scaled(h, mlp.forward(post_attention_layernorm.input(h), context));
  }

  nn::Attention self_attn;
  nn::GatedMlp mlp;
  nn::RmsNorm input_layernorm, post_attention_layernorm;
};

struct Body : nn::Module {
  Body(nn::Module& parent, const LlamaConfig& c)
      : Module(parent, "model"),
        embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size, c.initializer_range),
        layers(*this, "layers"),
        norm(*this, "norm", c.hidden_size, c.rms_norm_eps) {
    const auto rotary = std::make_shared<nn::Rotary>(c.rotary, c.head_dim);
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.emplace(c, i, rotary);
  }
  nn::Embedding embed_tokens;
  nn::ModuleList<Block> layers;
  nn::RmsNorm norm;
};

struct Llama : CausalLM {
  explicit Llama(const LlamaConfig& c) : model(*this, c) {
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

  Body model;
  std::optional<nn::Linear> lm_head;
};

}  // namespace

std::unique_ptr<CausalLM> make_llama(const LlamaConfig& config) {
  return std::make_unique<Llama>(config);
}
std::unique_ptr<CausalLM> make_llama(const HfConfig& config) {
  return make_llama(LlamaConfig(config));
}

}  // namespace temper::models
