// SigLIP's tower (Zhai et al., arXiv 2303.15343), which several families read images with:
//   x = patch_embedding(patch) + position
//   h = x + out_proj(attend(q, k, v of layer_norm1 x))   both ways, over a tile
//   y = h + fc2(act(fc1(layer_norm2 h)))
//   post_layernorm(y)
#pragma once

#include <string>
#include <vector>

#include "temper/models/vision/layers.h"
#include "temper/models/vision/tower.h"

namespace temper::models {

struct SiglipConfig {
  // `image_size` is read where the family's tiles have one size. Throws ConfigError.
  SiglipConfig(const HfConfig& vision, int64_t usual_image_size);

  int64_t hidden_size, intermediate_size, num_layers, num_heads, patch_size, channels;
  int64_t image_size;  // of a tile's sides, in pixels
  double norm_eps;
  ops::Activation activation;

  int64_t patch_width() const { return channels * patch_size * patch_size; }
  int64_t side() const { return image_size / patch_size; }  // of a tile, in patches
};

class SiglipLayer;

class SiglipTower : public nn::Module {
 public:
  SiglipTower(nn::Module& parent, std::string name, const SiglipConfig& config, int64_t positions);
  ~SiglipTower() override;
  // patches [N, patch_width] of tiles of so many, their positions [N, hidden_size] -> [N,
  // hidden_size]. Differentiable.
  at::Tensor forward(const at::Tensor& patches, const at::Tensor& position,
                     const std::vector<int64_t>& tiles, int adapter);
  // The same of tiles that are squares of SiglipConfig::side() patches: patch i of each has the
  // position place[i] of those learned. Throws DataError unless patches are float32 of whole tiles.
  at::Tensor square_tiles(const at::Tensor& patches, const SiglipConfig& config,
                          const std::vector<int64_t>& place, int adapter);
  // [positions, hidden_size], as learned.
  const nn::Parameter& positions() const;
  at::Device device() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The rows of cells of s x s patches of tiles with these rows and columns of patches: [N, width] ->
// [N / s², s² width], a cell's patches side by side.
at::Tensor merged_cells(const at::Tensor& x, int64_t tiles, int64_t rows, int64_t columns,
                        int64_t s);

}  // namespace temper::models
