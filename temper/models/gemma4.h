// What Gemma 4's language model (gemma4_text.cpp) reads beyond what decoders have in common.
#pragma once

#include <vector>

#include "temper/models/decoder.h"

namespace temper::models {

struct Gemma4Config : OwnConfig {
  nn::AttentionConfig global;                     // of layers without a window
  std::vector<int64_t> key_layer;                 // Backbone::key_layer
  int64_t layer_vocab_size = 0, layer_width = 0;  // of the layers' embeddings; width 0: none
  bool wide_shared_mlp = false;                   // twice as wide in layers that share keys

  nn::AttentionConfig attention_of(const DecoderConfig& c, size_t layer) const {
    nn::AttentionConfig a = c.window[layer] > 0 ? c.attention : global;
    a.window = c.window[layer];
    a.shares_keys = key_layer[layer] != static_cast<int64_t>(layer);
    return a;
  }
  int64_t mlp_width(const DecoderConfig& c, size_t layer) const {
    const bool shares = key_layer[layer] != static_cast<int64_t>(layer);
    return c.intermediate_size * (wide_shared_mlp && shares ? 2 : 1);
  }
};

// llama.cpp's architecture for it.
GgufArchitecture gemma4_gguf();

}  // namespace temper::models
