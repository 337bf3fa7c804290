// A model family of one's own, for every verb: init, sft, grpo, generate, score, export. Its
// config.json says "model_type": "parallel_llama" and has Llama's other keys:
//   own_model init --config config.json --output models/parallel
#include <memory>
#include <string>

#include "temper/cli/verbs.h"
#include "temper/models/decoder.h"

namespace nn = temper::nn;
namespace ops = temper::ops;
using temper::models::DecoderConfig;

// Attention and MLP side by side on one norm, as in GPT-J (Wang and Komatsuzaki, 2021): x +
// attention(n) + mlp(n), n = norm(x). A member's name is its weights' name in the checkpoint.
struct Block : nn::Module {
  Block(nn::Module& parent, std::string name, const DecoderConfig& c, int64_t layer,
        std::shared_ptr<nn::Rotary> rotary)
      : Module(parent, std::move(name)),
        input_layernorm(*this, "norm", c.hidden_size, c.attention.norm_eps),
        self_attn(*this, "self_attn", c.attention_of(layer), layer, std::move(rotary)),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, false, c.activation,
            c.initializer_range) {}

  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor attended = self_attn.forward(input_layernorm.input(x), context);
    return ops::add_scaled(ops::add_scaled(x, attended),
                           mlp.forward(input_layernorm.input(x), context));
  }

  nn::RmsNorm input_layernorm;  // one for both, "norm" in files
  nn::Attention self_attn;
  nn::GatedMlp mlp;
};

int main(int argc, char** argv) {
  namespace models = temper::models;
  models::register_family({.model_type = "parallel_llama",
                           .help = "Llama with attention and MLP side by side",
                           .config =
                               [](const models::HfConfig& config) {
                                 DecoderConfig c = models::families().find("llama").config(config);
                                 c.tie_word_embeddings = true;  // the head is the embedding
                                 return c;
                               },
                           .make = &models::make_decoder<Block>});
  return temper::cli::run({argv + 1, argv + argc});
}
