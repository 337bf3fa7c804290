// A transformer block of models in which some layers have attention and the others a state
// (nn/state_layers.h), and what its family says of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/models/sparse_block.h"
#include "temper/nn/state_layers.h"

namespace temper::models {

struct HybridConfig : OwnConfig {
  std::vector<bool> has_state;  // by layer
  // The layer with a state that stands under its name in a block.
  std::function<std::unique_ptr<nn::StateLayer>(nn::Module& block, int64_t layer)> make;
  // Names in a block, as transformers has them.
  const char *first_norm = "input_layernorm", *second_norm = "post_attention_layernorm";
  const char* mlp = "mlp";
  nn::MlpNames mlp_names = {};
};

// Whether each layer has a state: layer_types where the config has them, which call such a layer
// `state_type` and others full_attention, else by the family's `fallback`. Throws ConfigError.
std::vector<bool> state_layers(const HfConfig& config, int64_t layers, const char* state_type,
                               const std::function<bool(int64_t layer)>& fallback);

// Norms before: h = x + mix(norm(x)), then h + mlp(norm(h)); mix is attention or the layer with a
// state, and the MLP a mixture of experts in layers of SparseConfig.
class HybridBlock : public nn::Module {
 public:
  static constexpr bool kLeavesOutRows = true;
  HybridBlock(nn::Module& parent, std::string name, const DecoderConfig& config, int64_t layer,
              std::shared_ptr<nn::Rotary> rotary);
  at::Tensor forward(const at::Tensor& x, const nn::Context& context);

  // For Decoder: as Backbone's.
  std::vector<int64_t> state_sizes() const;
  nn::Attention::Heads attention_heads(int64_t layer, const at::Tensor& x,
                                       const nn::Context& context);

  std::optional<nn::Attention> self_attn;
  std::unique_ptr<nn::StateLayer> state_layer;  // one of the two
  std::optional<nn::GatedMlp> mlp;
  std::optional<SparseMlp> sparse;  // one of the two
  nn::RmsNorm first_norm, second_norm;
};

}  // namespace temper::models
