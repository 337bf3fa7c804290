// Gemma 3's tower (arXiv 2503.19786): SigLIP over a square image, whose patches are averaged in
// squares; an RMSNorm; a matrix to the language model, which sees an image's tokens both ways.
#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "temper/base/error.h"
#include "temper/models/vision/siglip.h"
#include "temper/ops/layers/embedding.h"

namespace temper::models {
namespace {

struct Gemma3Projector : nn::Module {
  Gemma3Projector(nn::Module& parent, const SiglipConfig& c, int64_t out)
      : Module(parent, "multi_modal_projector"),
        weight(*this, "mm_input_projection_weight", {c.hidden_size, out}, {}),
        norm(*this, "mm_soft_emb_norm", c.hidden_size, c.norm_eps, /*add_unit_offset=*/true) {}
  at::Tensor forward(const at::Tensor& x) {
    return ops::linear(norm.input(x), {{ops::Weight(weight.value().t().contiguous()), {}}})[0];
  }
  nn::Parameter weight;  // [in, out]
  nn::RmsNorm norm;
};

// Averages of s x s patches: the sum in the order of the patches, then one product.
at::Tensor averaged(const at::Tensor& x, int64_t tiles, int64_t side, int64_t s) {
  at::Tensor sum;
  for (int64_t i = 0; i < s * s; ++i) {
    std::vector<int64_t> rows;
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t r = 0; r + s <= side; r += s)
        for (int64_t c = 0; c + s <= side; c += s)
          rows.push_back((tile * side + r + i / s) * side + c + i % s);
    const at::Tensor part = ops::select_rows(x, rows);
    sum = sum.defined() ? ops::add_scaled(sum, part) : part;
  }
  const at::Tensor share = at::full_like(sum, 1 / static_cast<double>(s * s));
  return ops::materialize(ops::LinearInput::gated(sum, share, ops::Activation::kIdentity));
}

class Gemma3Tower : public Tower {
 public:
  Gemma3Tower(const SiglipConfig& c, int64_t pool, int64_t out)
      : config_(c),
        pool_(pool),
        tower_(*this, "vision_tower", c, c.side() * c.side()),
        projector_(*this, c, out) {}

  // Of several tiles the tokens come one after another.
  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    const int64_t side = config_.side();
    std::vector<int64_t> place(static_cast<size_t>(side * side));
    std::iota(place.begin(), place.end(), int64_t{0});
    const at::Tensor x = tower_.square_tiles(image.values, config_, place, adapter);
    ImageFeatures features{projector_.forward(averaged(x, x.size(0) / (side * side), side, pool_))};
    features.open = true;
    return features;
  }

 private:
  SiglipConfig config_;
  int64_t pool_;
  SiglipTower tower_;
  Gemma3Projector projector_;
};

std::unique_ptr<Tower> make_gemma3(const VisionConfig& config) {
  const SiglipConfig c(config.vision, 224);
  const int64_t tokens = config.whole.integer("mm_tokens_per_image", 256, 1 << 20),
                side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
  if (side * side != tokens || c.side() % side != 0)
    config.whole.fail("mm_tokens_per_image",
                      str(tokens, " tokens of ", c.side(), " x ", c.side(), " patches"));
  return std::make_unique<Gemma3Tower>(c, c.side() / side, config.text_hidden_size);
}

const RegisteredVisionFamily kGemma3Vision(
    {.model_type = "gemma3",
     .help = "Gemma 3: SigLIP, averaged to 256 tokens that see one another both ways",
     .prefixes = {"vision_tower.", "multi_modal_projector."},
     .projector = {"multi_modal_projector."},
     .make = &make_gemma3});

}  // namespace
}  // namespace temper::models
