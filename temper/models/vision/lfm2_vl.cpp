// LFM2-VL's tower (arXiv 2511.23404): SigLIP 2 over tiles of any shape, whose learned positions are
// resized to each tile; cells of patches side by side go through a norm and two layers to the
// language model.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "temper/base/error.h"
#include "temper/models/vision/siglip.h"

namespace temper::models {
namespace {

struct Lfm2VlProjector : nn::Module {
  Lfm2VlProjector(nn::Module& parent, const HfConfig& c, int64_t in, int64_t out)
      : Module(parent, "multi_modal_projector"),
        activation(c.activation("projector_hidden_act", "gelu")) {
    const bool bias = c.boolean("projector_bias", true);
    const int64_t inner = c.integer("projector_hidden_size", 2560, 1 << 20);
    if (c.boolean("projector_use_layernorm", true)) norm.emplace(*this, "layer_norm", in, 1e-5);
    first.emplace(*this, "linear_1", in, inner, bias, 0.02);
    second.emplace(*this, "linear_2", inner, out, bias, 0.02);
  }
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor inner = first->forward(norm ? norm->forward(x) : x, context);
    return second->forward(ops::LinearInput::gated(inner, at::ones_like(inner), activation),
                           context);
  }
  ops::Activation activation;
  std::optional<LayerNorm> norm;
  std::optional<nn::Linear> first, second;
};

// Shares of a side's learned points in each of `size` points: bilinear, with antialiasing; float32
// in transformers' order. [size][side].
std::vector<std::vector<float>> shares_of(int64_t size, int64_t side) {
  const float scale = static_cast<float>(side) / static_cast<float>(size),
              support = std::max(scale, 1.0F);
  std::vector<std::vector<float>> all;
  for (int64_t i = 0; i < size; ++i) {
    const float center = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    std::vector<float>& shares = all.emplace_back();
    float sum = 0;
    for (int64_t source = 0; source < side; ++source) {
      const float share =
          std::max(0.0F, 1 - std::abs(static_cast<float>(source) - center) / support);
      shares.push_back(share);
      sum += share;
    }
    for (float& share : shares) share /= sum;
  }
  return all;
}

class Lfm2VlTower : public Tower {
 public:
  Lfm2VlTower(const SiglipConfig& c, const HfConfig& whole, int64_t positions, int64_t factor,
              int64_t out)
      : config_(c),
        side_(static_cast<int64_t>(std::sqrt(static_cast<double>(positions)))),
        factor_(factor),
        tower_(*this, "vision_tower", c, positions),
        projector_(*this, whole, c.hidden_size * factor * factor, out) {}

  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    check_tiles(image);
    std::vector<at::Tensor> shares;
    std::vector<int64_t> counts;
    for (const auto& [rows, columns] : image.tiles) {
      counts.push_back(rows * columns);
      shares.push_back(shares_of_tile(rows, columns));
    }
    const at::Device device = tower_.device();
    const at::Tensor table = tower_.positions().value().t().contiguous();
    const at::Tensor position = ops::linear(ops::LinearInput::plain(at::cat(shares).to(device)),
                                            {{ops::Weight(table), {}}})[0];
    const at::Tensor x = tower_.forward(image.values.to(device), position, counts, adapter);
    std::vector<at::Tensor> cells;
    int64_t first = 0;
    for (const auto& [rows, columns] : image.tiles) {
      cells.push_back(
          merged_cells(x.narrow(0, first, rows * columns).contiguous(), 1, rows, columns, factor_));
      first += rows * columns;
    }
    return {projector_.forward(at::cat(cells), {.forest = {}, .adapter = adapter})};
  }

 private:
  void check_tiles(const ImagePixels& image) const {
    constexpr int64_t kMostSide = 1 << 15;
    const at::Tensor& x = image.values;
    check<DataError>(x.defined() && x.dim() == 2 && x.scalar_type() == at::kFloat &&
                         x.size(1) == config_.patch_width() && !image.tiles.empty(),
                     "an image's pixels of another form, expected [patches, ",
                     config_.patch_width(), "] float32 of ", image.tiles.size(), " tiles");
    int64_t all = 0;
    for (const auto& [rows, columns] : image.tiles) {
      check<DataError>(rows > 0 && columns > 0 && rows <= kMostSide && columns <= kMostSide &&
                           rows % factor_ == 0 && columns % factor_ == 0,
                       "a tile of ", rows, " rows and ", columns,
                       " columns of patches, expected multiples of ", factor_);
      all += rows * columns;
    }
    check<DataError>(all == x.size(0), "tiles of ", all, " patches, and the image has ", x.size(0));
  }
  at::Tensor shares_of_tile(int64_t rows, int64_t columns) const {
    const auto by_row = shares_of(rows, side_), by_column = shares_of(columns, side_);
    at::Tensor out = at::empty({rows * columns, side_ * side_}, at::kFloat);
    float* to = out.mutable_data_ptr<float>();
    for (const std::vector<float>& r : by_row)
      for (const std::vector<float>& c : by_column)
        for (const float of_row : r)
          for (const float of_column : c) *to++ = of_row * of_column;
    return out;
  }

  SiglipConfig config_;
  int64_t side_, factor_;
  SiglipTower tower_;
  Lfm2VlProjector projector_;
};

std::unique_ptr<Tower> make_lfm2_vl(const VisionConfig& config) {
  const SiglipConfig c(config.vision, 1 << 16);
  const int64_t positions = config.vision.integer("num_patches", 256, 1 << 20),
                side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (side * side != positions)
    config.vision.fail("num_patches", str("found ", positions, ", expected a square"));
  return std::make_unique<Lfm2VlTower>(c, config.whole, positions,
                                       config.whole.integer("downsample_factor", 2, 64),
                                       config.text_hidden_size);
}

const RegisteredVisionFamily kLfm2Vl({.model_type = "lfm2_vl",
                                      .help = "LFM2-VL: SigLIP 2 over tiles of any shape",
                                      .prefixes = {"vision_tower.", "multi_modal_projector."},
                                      .projector = {"multi_modal_projector."},
                                      .make = &make_lfm2_vl});

}  // namespace
}  // namespace temper::models
