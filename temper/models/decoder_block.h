// The transformer block of the decoder families.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {

// h = x + s after(mix(before(x))), then h + s after(feed(before(h))): the norms are those of
// DecoderConfig::norms, s is residual_scale. mix is attention, also from latents, or a layer with a
// state; feed is an MLP, or a mixture of experts in layers of SparseConfig. What is parallel feeds
// before(x), with the one norm.
class DecoderBlock : public nn::Module {
 public:
  static constexpr bool kLeavesOutRows = true;
  DecoderBlock(nn::Module& parent, std::string name, const DecoderConfig& config, int64_t layer,
               std::shared_ptr<nn::Rotary> rotary);
  at::Tensor forward(const at::Tensor& x, const nn::Context& context);

  // For Decoder: what attention reads of the block's input, and Backbone::state_sizes.
  ops::LinearInput mixer_input(const at::Tensor& x) const;
  std::vector<int64_t> state_sizes() const;

  std::unique_ptr<nn::Attention> self_attn;
  std::unique_ptr<nn::StateLayer> state_layer;  // one of the two

 private:
  void make_norms(const DecoderConfig& config);

  std::optional<nn::GatedMlp> mlp_;
  std::optional<SparseMlp> sparse_;  // one of the two
  std::optional<nn::RmsNorm> before_mixer_, after_mixer_, before_feed_, after_feed_;
  bool parallel_;
  double residual_scale_;
};

}  // namespace temper::models
