// What Gemma 4's language model (gemma4_text.cpp) reads beyond what decoders have in common.
#pragma once

#include <vector>

#include "temper/models/sparse_mlp.h"

namespace temper::models {

struct Gemma4Config : OwnConfig {
  nn::AttentionConfig global;                     // of layers without a window
  std::vector<int64_t> key_layer;                 // Backbone::key_layer
  int64_t layer_vocab_size = 0, layer_width = 0;  // of the layers' embeddings; width 0: none
  bool wide_shared_mlp = false;                   // twice as wide in layers that share keys
  // Of images: tokens with this id have the padding token's embeddings of layers; -1: there are
  // none.
  int64_t image_token = -1, padding_token = 0;

  nn::AttentionConfig attention_of(const DecoderConfig& c, size_t layer) const {
    nn::AttentionConfig a = c.window[layer] > 0 ? c.attention : global;
    a.window = c.window[layer];
    a.causal = a.window == 0;
    a.shares_keys = key_layer[layer] != static_cast<int64_t>(layer);
    return a;
  }
  int64_t mlp_width(const DecoderConfig& c, size_t layer) const {
    const bool shares = key_layer[layer] != static_cast<int64_t>(layer);
    return c.intermediate_size * (wide_shared_mlp && shares ? 2 : 1);
  }
};

// Beside a block's MLP, where a config has experts (`enable_moe_block`), both norms of what they
// give, and the one of what the experts read:
//   n1 mlp + n2 Σ over a token's experts of weight · expert(n3 h)
// The router reads h normalized and scaled by feature; a scale of each expert multiplies its
// weights, which sum to 1 before.
class Gemma4Experts : public nn::Module {
 public:
  Gemma4Experts(nn::Module& block, const DecoderConfig& config, int64_t layer);
  // `h` [N, hidden_size] as the block has it after attention, `fed` what its MLP gives.
  at::Tensor forward(const at::Tensor& h, const at::Tensor& fed, const nn::Context& context);

 private:
  struct Router : nn::Module {
    Router(nn::Module& block, const DecoderConfig& config);
    nn::Router proj;
    nn::Parameter scale, per_expert_scale;
  };
  // The weights [N, chosen] times their experts' scales.
  at::Tensor scaled_weights(const ops::Routing& routing) const;

  Router router_;
  nn::Experts experts_;
  nn::RmsNorm post_mlp_, post_experts_, pre_experts_;
  double eps_, input_scale_;
  int64_t layer_;
};
// The keys num_experts, top_k_experts and moe_intermediate_size, where enable_moe_block asks for
// them. Throws ConfigError.
void read_gemma4_experts(const HfConfig& config, DecoderConfig& c);

// llama.cpp's architecture for it.
GgufArchitecture gemma4_gguf();

}  // namespace temper::models
