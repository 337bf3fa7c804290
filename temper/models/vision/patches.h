// What the towers of Qwen's models have in common: patches that come by merged cell, and the keys
// of their configs.
#pragma once

#include <vector>

#include "temper/models/vision/layers.h"
#include "temper/models/vision/tower.h"
#include "temper/nn/rotary.h"

namespace temper::models {

// Rows and columns of an image's patches, a merged cell's patches one after another.
struct PatchPlaces {
  PatchPlaces(int64_t rows, int64_t columns, int64_t merge);
  int64_t rows, columns;
  std::vector<int64_t> row, column;
};

// Throws DataError unless the image's pixels are [patches, width] float32 of a grid whose sides are
// multiples of `merge`.
void check_patches(const ImagePixels& image, int64_t merge, int64_t width);

// A linear layer over patches, `proj`.
struct PatchEmbed : nn::Module {
  PatchEmbed(nn::Module& parent, int64_t patch_width, int64_t hidden_size, bool bias)
      : Module(parent, "patch_embed"), proj(*this, "proj", patch_width, hidden_size, bias, 0.02) {}
  nn::Linear proj;
};

// The keys that their configs share.
struct QwenVisionConfig {
  // Throws ConfigError.
  QwenVisionConfig(const VisionConfig& config, int64_t usual_patch_size, int64_t usual_hidden_size,
                   int64_t usual_intermediate_size, int64_t usual_depth,
                   const char* usual_activation);
  int64_t depth, hidden_size, intermediate_size, num_heads, patch_size, patch_width, merge;
  int64_t out_hidden_size;
  double theta;
  ops::Activation activation;

  int64_t head_dim() const { return hidden_size / num_heads; }
  TowerAttention::Config attention() const {
    return {.hidden_size = hidden_size,
            .num_heads = num_heads,
            .head_dim = head_dim(),
            .joined = true,
            .out_name = "proj"};
  }
  int64_t merged_width() const { return hidden_size * merge * merge; }
};
// Numbers of layers below `depth` that a key lists; `usual` where it is missing.
std::vector<int64_t> listed_layers(const HfConfig& vision, const char* key, int64_t depth,
                                   std::vector<int64_t> usual);

}  // namespace temper::models
