// SmolVLM's tower (arXiv 2504.05299): SigLIP over tiles; cells of patches side by side go through
// one matrix to the language model.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/models/vision/siglip.h"

namespace temper::models {
namespace {

struct SmolVlmConnector : nn::Module {
  struct Projection : nn::Module {
    Projection(nn::Module& parent, int64_t in, int64_t out)
        : Module(parent, "modality_projection"), proj(*this, "proj", in, out, false, 0.02) {}
    nn::Linear proj;
  };
  SmolVlmConnector(nn::Module& parent, int64_t in, int64_t out)
      : Module(parent, "connector"), projection(*this, in, out) {}
  Projection projection;
};

// The place of each of `side` patches in a table of as many, by the buckets of transformers: in
// float32, where rounding may move one. Equal for the sides that models have, 27 and 32.
std::vector<int64_t> buckets(int64_t side) {
  const double step = 1 / static_cast<double>(side);
  std::vector<float> boundaries;
  const auto count = static_cast<int64_t>(std::ceil((1.0 - step) / step));
  for (int64_t i = 0; i < count; ++i)
    boundaries.push_back(static_cast<float>(step + static_cast<double>(i) * step));
  const float share = 1.0F / static_cast<float>(side);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < side; ++i) {
    const float at = std::min(static_cast<float>(i) * share, static_cast<float>(1.0 - 1e-6));
    places.push_back(std::upper_bound(boundaries.begin(), boundaries.end(), at) -
                     boundaries.begin());
  }
  return places;
}

class SmolVlmTower : public Tower {
 public:
  SmolVlmTower(const SiglipConfig& c, int64_t scale, int64_t out)
      : config_(c),
        scale_(scale),
        tower_(*this, "vision_model", c, c.side() * c.side()),
        connector_(*this, c.hidden_size * scale * scale, out) {}

  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    const int64_t side = config_.side();
    const std::vector<int64_t> bucket = buckets(side);
    std::vector<int64_t> place;
    for (const int64_t row : bucket)
      for (const int64_t column : bucket) place.push_back(row * side + column);
    const at::Tensor x = tower_.square_tiles(image.values, config_, place, adapter);
    const int64_t tiles = x.size(0) / (side * side);
    return {connector_.projection.proj.forward(merged_cells(x, tiles, side, side, scale_),
                                               {.forest = {}, .adapter = adapter})};
  }

 private:
  SiglipConfig config_;
  int64_t scale_;
  SiglipTower tower_;
  SmolVlmConnector connector_;
};

std::unique_ptr<Tower> make_smolvlm(const VisionConfig& config) {
  const SiglipConfig c(config.vision, 224);
  const int64_t scale = config.whole.integer("scale_factor", 2, 64);
  if (c.side() % scale != 0)
    config.whole.fail("scale_factor", str(scale, " of ", c.side(), " patches"));
  return std::make_unique<SmolVlmTower>(c, scale, config.text_hidden_size);
}

const RegisteredVisionFamily kSmolVlm({.model_type = "smolvlm",
                                       .help = "SmolVLM and SmolVLM2: SigLIP over tiles",
                                       .prefixes = {"vision_model.", "connector."},
                                       .projector = {"connector."},
                                       .make = &make_smolvlm});

}  // namespace
}  // namespace temper::models
