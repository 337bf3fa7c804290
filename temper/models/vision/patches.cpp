#include "temper/models/vision/patches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/models/config_values.h"

namespace temper::models {

PatchPlaces::PatchPlaces(int64_t rows, int64_t columns, int64_t merge)
    : rows(rows), columns(columns) {
  for (int64_t r = 0; r < rows; r += merge)
    for (int64_t c = 0; c < columns; c += merge)
      for (int64_t i = 0; i < merge * merge; ++i) {
        row.push_back(r + i / merge);
        column.push_back(c + i % merge);
      }
}

void check_patches(const ImagePixels& image, int64_t merge, int64_t width) {
  constexpr int64_t kMostSide = 1 << 15;
  const int64_t rows = image.grid_rows, columns = image.grid_columns;
  check<DataError>(rows > 0 && columns > 0 && rows <= kMostSide && columns <= kMostSide &&
                       rows % merge == 0 && columns % merge == 0,
                   "an image of ", rows, " rows and ", columns,
                   " columns of patches, expected multiples of ", merge);
  check<DataError>(image.values.defined() && image.values.dim() == 2 &&
                       image.values.scalar_type() == at::kFloat &&
                       image.values.size(0) == rows * columns && image.values.size(1) == width,
                   "an image's pixels of another form, expected [", rows * columns, ", ", width,
                   "] float32");
}

QwenVisionConfig::QwenVisionConfig(const VisionConfig& config, int64_t usual_patch_size,
                                   int64_t usual_hidden_size, int64_t usual_intermediate_size,
                                   int64_t usual_depth, const char* usual_activation) {
  constexpr int64_t kMostWidth = 1 << 20;
  const HfConfig& c = config.vision;
  depth = c.integer("depth", usual_depth, 1000);
  hidden_size = c.integer("hidden_size", usual_hidden_size, kMostWidth);
  intermediate_size = c.integer("intermediate_size", usual_intermediate_size, kMostWidth);
  num_heads = c.integer("num_heads", 16, hidden_size);
  if (hidden_size % (4 * num_heads) != 0)
    c.fail("num_heads", str(num_heads, " heads of ", hidden_size,
                            " features, expected a multiple of four in each"));
  patch_size = c.integer("patch_size", usual_patch_size, 1024);
  patch_width = c.integer(c.has("in_chans") ? "in_chans" : "in_channels", 3, 64) *
                c.integer("temporal_patch_size", 2, 64) * patch_size * patch_size;
  merge = c.integer("spatial_merge_size", 2, 64);
  out_hidden_size = c.integer("out_hidden_size", 3584, kMostWidth);
  if (out_hidden_size != config.text_hidden_size)
    c.fail("out_hidden_size", str("found ", out_hidden_size, ", and the language model has ",
                                  config.text_hidden_size));
  activation = c.activation("hidden_act", usual_activation);
  const std::optional<HfConfig> rope = c.rope_section();
  theta = rope ? number_above(*rope, "rope_theta", 0, 10000) : 10000;
}

std::vector<int64_t> listed_layers(const HfConfig& vision, const char* key, int64_t depth,
                                   std::vector<int64_t> usual) {
  if (!vision.has(key)) return usual;
  std::vector<int64_t> layers;
  for (const double layer : vision.numbers(key)) {
    if (!(layer >= 0 && layer < static_cast<double>(depth)) || layer != std::floor(layer))
      vision.fail(key, str("expected numbers of layers below ", depth));
    layers.push_back(static_cast<int64_t>(layer));
  }
  return layers;
}

}  // namespace temper::models
