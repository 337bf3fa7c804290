// The body of a model: tokens in, hidden states out. What reads the hidden states is a head
// (head.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/models/files/hf_config.h"
#include "temper/nn/blocks.h"

namespace temper::models {

// What the rest of the program needs to know of a model, whatever its family.
struct ModelConfig {
  int64_t vocab_size = 0, hidden_size = 0, num_hidden_layers = 0;
  int64_t max_position_embeddings = 0;         // the length that it was trained for
  double initializer_range = 0.02;             // standard init_std of fresh weights
  bool tie_word_embeddings = false;            // the vocabulary head reads the embedding's weight
  int64_t experts = 0, experts_per_token = 0;  // of a mixture of experts; 0: it is none
  double logit_scale = 1;                      // logits are multiplied by it
  double final_soft_cap = 0;                   // then they become cap tanh(x / cap); 0: they stay
};

struct Family;

class Backbone : public nn::Module {
 public:
  explicit Backbone(const ModelConfig& config) : config_(config) {}
  const ModelConfig& config() const { return config_; }

  // Hidden states after the final norm, [N, hidden_size], of every token of the batch. Without
  // gradients several threads may run it at once.
  virtual at::Tensor forward(const nn::Context& context) = 0;

  virtual ops::AttentionSpec attention_spec(int64_t layer) const = 0;
  // The layer whose keys and values a layer attends to: its own, or those of an earlier one.
  virtual int64_t key_layer(int64_t layer) const { return layer; }
  // Numbers that each operation of a layer carries from token to token (ops/layers/recurrent.h);
  // none: the layer has keys and values. attention_spec() of a layer with a state has no key and
  // value heads.
  virtual std::vector<int64_t> state_sizes(int64_t /*layer*/) const { return {}; }

  virtual nn::Embedding& embedding() = 0;

  // What attention of a layer makes of its block's input x [N, hidden_size], for what compares
  // attention maps; differentiable. nn::Context::observe shows the blocks' inputs. Of layers of
  // which why_no_attention_maps() is empty.
  virtual nn::Attention::Heads attention_heads(int64_t layer, const at::Tensor& /*x*/,
                                               const nn::Context& /*context*/) {
    throw RunError(str("layer ", layer, " ", why_no_attention_maps(layer)));
  }
  // Why the attention maps of a layer cannot be computed from its input alone, as what is said of
  // it ("carries a state .."); empty: they can.
  virtual std::string why_no_attention_maps(int64_t /*layer*/) const {
    return "is of a model whose attention is not shown";
  }

  // Whose body it is; null: it was made by hand.
  const Family* family() const { return family_; }
  void set_family(const Family& family) { family_ = &family; }

  // Tokens of its vocabulary that its files do not have (files/new_tokens.h).
  const std::vector<std::string>& new_tokens() const { return new_tokens_; }
  void set_new_tokens(std::vector<std::string> tokens) { new_tokens_ = std::move(tokens); }

 private:
  ModelConfig config_;
  const Family* family_ = nullptr;
  std::vector<std::string> new_tokens_;
};

}  // namespace temper::models
