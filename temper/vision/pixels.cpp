#include "temper/vision/pixels.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <optional>
#include <vector>

#include "temper/base/error.h"

namespace temper {
namespace {

// Of LibTorch since 2.13; earlier ones build this program, too.
at::Tensor lanczos(const at::Tensor& image, at::IntArrayRef size) {
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::_upsample_lanczos2d_aa", ""});
  check<ConfigError>(found.has_value(),
                     "images of this model are resized by Lanczos' filter, "
                     "which this LibTorch does not have; expected 2.13 or newer");
  using Resize = at::Tensor(const at::Tensor&, c10::SymIntArrayRef, bool, std::optional<double>,
                            std::optional<double>);
  const std::vector<c10::SymInt> sides(size.begin(), size.end());
  return found->typed<Resize>().call(image, sides, false, std::nullopt, std::nullopt);
}

// [1, 3, height, width] of bytes. In bytes even where torchvision goes over float32, as it does for
// the bilinear filter on processors without AVX2: the integers are the same everywhere.
at::Tensor resized(const at::Tensor& image, const ImageSize& to, ImageFilter filter) {
  if (image.size(2) == to.height && image.size(3) == to.width) return image;
  const std::array<int64_t, 2> size{to.height, to.width};
  switch (filter) {
    case ImageFilter::kBilinear:
      return at::_upsample_bilinear2d_aa(image, size, false);
    case ImageFilter::kBicubic:
      return at::_upsample_bicubic2d_aa(image, size, false);
    case ImageFilter::kLanczos:
      return lanczos(image, size);
  }
  throw RunError("an unknown filter of images");
}

// What a byte becomes in each channel, in the order of torchvision's operations: with both steps
// (x - mean / factor) / (std / factor), whose constants are products in float32.
struct Values {
  explicit Values(const ImagePatches& patches) {
    const auto scale = static_cast<float>(1. / patches.rescale_factor);
    const auto factor = static_cast<float>(patches.rescale_factor);
    for (size_t c = 0; c < 3; ++c) {
      auto mean = static_cast<float>(patches.mean[c]);
      auto std = static_cast<float>(patches.std[c]);
      if (patches.rescale) mean *= scale;
      if (patches.rescale) std *= scale;
      for (size_t i = 0; i < 256; ++i) {
        const auto byte = static_cast<float>(i);
        of[c][i] = patches.normalize ? (byte - mean) / std : patches.rescale ? byte * factor : byte;
      }
    }
  }
  std::array<std::array<float, 256>, 3> of;
};

// One patch, from its first pixel; `row` and `plane` are the strides of the canvas [3, H, W].
float* write_patch(const ImagePatches& patches, const Values& values, const uint8_t* from,
                   int64_t row, int64_t plane, float* to) {
  const int64_t side = patches.size;
  if (patches.channels_last) {
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        for (int64_t c = 0; c < 3; ++c) *to++ = values.of[c][from[c * plane + y * row + x]];
    return to;
  }
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t t = 0; t < patches.time; ++t)
      for (int64_t y = 0; y < side; ++y)
        for (int64_t x = 0; x < side; ++x) *to++ = values.of[c][from[c * plane + y * row + x]];
  return to;
}

float* write_tile(const ImagePatches& patches, const Values& values, const at::Tensor& canvas,
                  const ImageTile& tile, float* to) {
  const int64_t row = canvas.size(3), plane = canvas.size(2) * row;
  const int64_t side = patches.size, merge = patches.merge;
  const uint8_t* pixels = canvas.const_data_ptr<uint8_t>() + tile.top * row + tile.left;
  for (int64_t y = 0; y < tile.rows; y += merge)
    for (int64_t x = 0; x < tile.columns; x += merge)
      for (int64_t v = 0; v < merge; ++v)
        for (int64_t u = 0; u < merge; ++u)
          to = write_patch(patches, values, pixels + (y + v) * side * row + (x + u) * side, row,
                           plane, to);
  return to;
}

}  // namespace

ProcessedImage process_image(const ImageProcessor& processor, const Picture& picture) {
  const ImagePatches& patches = processor.patches();
  ProcessedImage out{processor.layout({picture.width, picture.height}), {}};
  const at::Tensor interleaved = at::from_blob(const_cast<uint8_t*>(picture.rgb.data()),
                                               {1, picture.height, picture.width, 3}, at::kByte);
  const at::Tensor source = interleaved.permute({0, 3, 1, 2}).contiguous();
  std::vector<at::Tensor> canvases;
  for (const ImageCanvas& canvas : out.layout.canvases)
    canvases.push_back(
        resized(canvas.from < 0 ? source : canvases[canvas.from], canvas.size, patches.filter)
            .contiguous());
  out.pixels = at::empty({out.layout.patches(), patches.width()}, at::kFloat);
  const Values values(patches);
  float* to = out.pixels.data_ptr<float>();
  for (const ImageTile& tile : out.layout.tiles)
    to = write_tile(patches, values, canvases[tile.canvas], tile, to);
  return out;
}

}  // namespace temper
