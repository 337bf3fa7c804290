// A model family of one's own, for every verb: init, sft, grpo, generate, score, export. Its
// config.json says "model_type": "parallel_llama" and has Llama's other keys:
//   own_model init --config config.json --output models/parallel
#include <cmath>
#include <memory>
#include <string>

#include "temper/cli/verbs.h"
#include "temper/models/llama.h"
#include "temper/nn/recompute.h"

namespace nn = temper::nn;
namespace ops = temper::ops;
using temper::models::LlamaConfig;

// Attention and MLP side by side on one norm, as in GPT-J (Wang and Komatsuzaki, 2021): x +
// attention(n) + mlp(n), n = norm(x). A member's name is its weights' name in the checkpoint.
struct Block : nn::Module {
  Block(nn::Module& parent, std::string name, const LlamaConfig& c, int64_t layer,
        std::shared_ptr<nn::Rotary> rotary)
      : Module(parent, std::move(name)),
        norm(*this, "norm", c.hidden_size, c.rms_norm_eps),
        self_attn(*this, "self_attn",
                  {.hidden_size = c.hidden_size,
                   .num_heads = c.num_attention_heads,
                   .num_kv_heads = c.num_key_value_heads,
                   .head_dim = c.head_dim,
                   .norm_eps = c.rms_norm_eps,
                   .scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),
                   .deviation = c.initializer_range},
                  layer, std::move(rotary)),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.activation,
            c.initializer_range) {}

  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor attended = self_attn.forward(norm.input(x), context);
    return ops::add_scaled(ops::add_scaled(x, attended), mlp.forward(norm.input(x), context));
  }

  nn::RmsNorm norm;
  nn::Attention self_attn;
  nn::GatedMlp mlp;
};

struct ParallelLlama : temper::models::CausalLM {
  explicit ParallelLlama(const LlamaConfig& c)
      : embed_tokens(*this, "embed_tokens", c.vocab_size, c.hidden_size, c.initializer_range),
        layers(*this, "layers"),
        norm(*this, "norm", c.hidden_size, c.rms_norm_eps) {
    const auto rotary = std::make_shared<nn::Rotary>(c.rotary, c.head_dim);
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.emplace(c, i, rotary);
  }

  at::Tensor forward(const nn::Context& context) override {
    at::Tensor x = embed_tokens.forward(context);
    for (auto& layer : layers)
      x = nn::run_block(*layer, x, context, [block = layer.get(), context](const at::Tensor& in) {
        return block->forward(in, context);
      });
    return norm.forward(x);
  }
  nn::Parameter& head() override { return embed_tokens.weight; }  // the head is the embedding
  ops::AttentionSpec attention_spec() override { return layers[0].self_attn.spec(); }

  nn::Embedding embed_tokens;
  nn::ModuleList<Block> layers;
  nn::RmsNorm norm;
};

int main(int argc, char** argv) {
  temper::models::register_family({.model_type = "parallel_llama",
                                   .make = [](const temper::models::HfConfig& config)
                                       -> std::unique_ptr<temper::models::CausalLM> {
                                     return std::make_unique<ParallelLlama>(LlamaConfig(config));
                                   },
                                   .help = "Llama with attention and MLP side by side"});
  return temper::cli::run({argv + 1, argv + argc});
}
