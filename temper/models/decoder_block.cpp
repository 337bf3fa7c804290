// The transformer block of the decoder families.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/decoder.h"
#include "temper/models/sparse_mlp.h"
#include "temper/nn/latent_attention.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/nn/weights/row_tiles.h"

namespace temper::models {
namespace {

std::unique_ptr<nn::Attention> make_attention(nn::Module& block, const DecoderConfig& c,
                                              int64_t layer, std::shared_ptr<nn::Rotary> rotary) {
  const nn::AttentionConfig config = c.attention_of(layer);
  if (c.latent)
    return std::make_unique<nn::LatentAttention>(block, "self_attn", config, *c.latent, layer,
                                                 std::move(rotary));
  return std::make_unique<nn::Attention>(block, "self_attn", config, layer, std::move(rotary));
}

ops::LinearInput normed(const std::optional<nn::RmsNorm>& norm, const at::Tensor& x) {
  return norm ? norm->input(x) : ops::LinearInput::plain(x);
}

// h = x + s · after(mixer(before(x))), y = h + s · after(mlp(before(h))). DecoderConfig::norms says
// which of the norms `before` and `after` exist; s is residual_scale. The mixer is attention (also
// latent attention) or a layer with a state; the MLP is a mixture of experts in the layers that
// SparseConfig names. In a parallel block the mixer and the MLP both read before(x), with one norm.
class DecoderBlock : public nn::Module {
 public:
  static constexpr bool kLeavesOutRows = true;
  DecoderBlock(nn::Module& parent, std::string name, const DecoderConfig& config, int64_t layer,
               std::shared_ptr<nn::Rotary> rotary);
  at::Tensor forward(const at::Tensor& x, const nn::Context& context);

  // For Decoder: the mixer's input (the normalized x), and this block's part of
  // Backbone::state_sizes.
  ops::LinearInput mixer_input(const at::Tensor& x) const;
  std::vector<int64_t> state_sizes() const;

  std::unique_ptr<nn::Attention> self_attn;
  std::unique_ptr<nn::StateLayer> state_layer;  // exactly one of the two is set

 private:
  void make_norms(const DecoderConfig& config);
  // to + s · norm(y).
  at::Tensor add(const at::Tensor& to, const std::optional<nn::RmsNorm>& norm,
                 const at::Tensor& y) const {
    return ops::add_scaled(to, norm ? norm->forward(y) : y, residual_scale_);
  }
  // Of x [N, hidden] the rows of h that are read, and in a parallel block those of x.
  nn::Tensors mix(const at::Tensor& x, const nn::Context& context, const nn::ReadRows& read);
  // y of rows of what mix() gives.
  at::Tensor feed(const nn::Tensors& rows, const nn::Context& context);
  void find_feeders();

  std::optional<nn::GatedMlp> mlp_;
  std::optional<SparseMlp> sparse_;  // exactly one of the two is set
  std::optional<nn::RmsNorm> before_mixer_, after_mixer_, before_feed_, after_feed_;
  std::vector<nn::Module*> feeders_;  // what feed() reads parameters of
  bool parallel_;
  double residual_scale_;
};

// Parameters are in files, and their gradients summed, in the order in which they are made here.
DecoderBlock::DecoderBlock(nn::Module& parent, std::string name, const DecoderConfig& c,
                           int64_t layer, std::shared_ptr<nn::Rotary> rotary)
    : Module(parent, std::move(name)), parallel_(c.parallel), residual_scale_(c.residual_scale) {
  const auto i = static_cast<size_t>(layer);
  const bool hybrid = c.make_state != nullptr;
  if (hybrid) make_norms(c);
  if (c.has_state[i])
    state_layer = c.make_state(*this, layer);
  else
    self_attn = make_attention(*this, c, layer, std::move(rotary));
  if (c.sparse && !hybrid) make_norms(c);
  if (c.sparse && c.sparse->layers.at(i))
    sparse_.emplace(*this, c.sparse->module, c, layer);
  else
    mlp_.emplace(*this, c.mlp_name, c.hidden_size, c.intermediate_size, c.mlp_bias, c.activation,
                 c.initializer_range, c.joined_mlp, c.mlp_layers);
  if (!c.sparse && !hybrid) make_norms(c);
  find_feeders();
}

void DecoderBlock::make_norms(const DecoderConfig& c) {
  const auto make = [&](std::optional<nn::RmsNorm>& norm, const char* name) {
    if (name)
      norm.emplace(*this, name, c.hidden_size, c.attention.norm_eps, c.attention.norm_one_plus,
                   c.norm_centered);
  };
  make(before_mixer_, c.norms.before_mixer);
  make(after_mixer_, c.norms.after_mixer);
  make(before_feed_, c.norms.before_feed);
  make(after_feed_, c.norms.after_feed);
}

ops::LinearInput DecoderBlock::mixer_input(const at::Tensor& x) const {
  return normed(before_mixer_, x);
}

nn::Tensors DecoderBlock::mix(const at::Tensor& x, const nn::Context& context,
                              const nn::ReadRows& read) {
  const at::Tensor mixed = self_attn ? self_attn->forward(mixer_input(x), context)
                                     : state_layer->forward(mixer_input(x), context);
  const at::Tensor kept = read.select(x), h = add(kept, after_mixer_, mixed);
  return parallel_ ? nn::Tensors{h, kept} : nn::Tensors{h};
}

at::Tensor DecoderBlock::feed(const nn::Tensors& rows, const nn::Context& context) {
  const ops::LinearInput in = parallel_ ? mixer_input(rows[1]) : normed(before_feed_, rows[0]);
  return add(rows[0], after_feed_,
             sparse_ ? sparse_->forward(in, context) : mlp_->forward(in, context));
}

void DecoderBlock::find_feeders() {
  if (mlp_) feeders_.push_back(&*mlp_);
  if (sparse_) feeders_.push_back(&*sparse_);
  for (std::optional<nn::RmsNorm>* norm :
       {parallel_ ? &before_mixer_ : &before_feed_, &after_feed_})
    if (*norm) feeders_.push_back(&**norm);
}

at::Tensor DecoderBlock::forward(const at::Tensor& x, const nn::Context& context) {
  const nn::ReadRows read(context);
  const nn::Tensors mixed = mix(x, context, read);
  const nn::RowFunction feed_rows = [this](const nn::Tensors& rows, const nn::Context& of_rows) {
    return feed(rows, of_rows);
  };
  const int64_t tile = sparse_ ? nn::kExpertTileRows : nn::kTileRows;
  const bool divides = mixed[0].size(0) > tile && (!sparse_ || sparse_->treats_rows_alone(context));
  const at::Tensor y = divides ? nn::run_in_tiles(feeders_, mixed, read.context(), feed_rows, tile)
                               : feed(mixed, read.context());
  return read.restore(y, x.size(0));
}

std::vector<int64_t> DecoderBlock::state_sizes() const {
  return state_layer ? state_layer->state_sizes() : std::vector<int64_t>();
}

}  // namespace

std::unique_ptr<Backbone> make_decoder(const DecoderConfig& config) {
  return std::make_unique<Decoder<DecoderBlock>>(config);
}

}  // namespace temper::models
