// Qwen2VLImageProcessor: of qwen2_5_vl, qwen3_vl, qwen3_5 and their mixtures of experts. One canvas
// whose sides are multiples of a merged patch, near the picture's own size.
#include "temper/image/processors/geometry.h"
#include "temper/image/settings.h"

namespace temper {
namespace {

using namespace image_processors_detail;

class Qwen2VlProcessor : public ImageProcessor {
 public:
  Qwen2VlProcessor(const ImageSettings& settings, const PixelBounds& bounds) {
    // What holds without a key, as in transformers: OpenAI's CLIP.
    patches_.mean = {0.48145466, 0.4578275, 0.40821073};
    patches_.std = {0.26862954, 0.26130258, 0.27577711};
    settings.read_values(patches_);
    patches_.size = settings.whole("patch_size", 14, 1, 1024);
    patches_.time = settings.whole("temporal_patch_size", 2, 1, 16);
    patches_.merge = settings.whole("merge_size", 2, 1, 64);
    check<ConfigError>(settings.flag("do_resize", true), settings.file(),
                       ": do_resize is false; expected true");
    settings.expect_off("do_center_crop");
    constexpr int64_t kMost = int64_t{1} << 40;
    least_ = settings.within("size", "shortest_edge", 56 * 56);
    most_ = settings.within("size", "longest_edge", 28 * 28 * 1280);
    least_ = bounds.min.value_or(settings.whole("min_pixels", least_, 1, kMost));  // older keys
    most_ = bounds.max.value_or(settings.whole("max_pixels", most_, 1, kMost));
    check<ConfigError>(least_ <= most_, settings.file(), ": images of at least ", least_,
                       " and at most ", most_, " pixels");
    settings.agree("patch_size", patches_.size, settings.of_vision("patch_size", patches_.size));
    settings.agree("merge_size", patches_.merge,
                   settings.of_vision("spatial_merge_size", patches_.merge));
    settings.agree("temporal_patch_size", patches_.time,
                   settings.of_vision("temporal_patch_size", patches_.time));
    reading_.grid = true;
    tokens_.image = tokens_.placeholder = settings.token("image_token", "<|image_pad|>");
  }

  // smart_resize of transformers.
  ImageLayout layout(const ImageSize& picture) const override {
    const auto width = static_cast<double>(picture.width);
    const auto height = static_cast<double>(picture.height);
    check<DataError>(std::max(width, height) / std::min(width, height) <= 200, "an image of ",
                     picture.width, " x ", picture.height,
                     " pixels; one side may be 200 times the other at most");
    const int64_t factor = patches_.size * patches_.merge;
    ImageSize size{rounded(width, factor), rounded(height, factor)};
    if (size.width * size.height > most_) {
      const double beta = std::sqrt(height * width / static_cast<double>(most_));
      size = {std::max(factor, floored(width / beta, factor)),
              std::max(factor, floored(height / beta, factor))};
    } else if (size.width * size.height < least_) {
      const double beta = std::sqrt(static_cast<double>(least_) / (height * width));
      size = {ceiled(width * beta, factor), ceiled(height * beta, factor)};
    }
    check_canvas(size);
    return {.canvases = {{.size = size}},
            .tiles = {whole_tile(0, size, patches_.size, patches_.merge)}};
  }

  // The template writes what begins and ends an image.
  std::string expand(const ImageLayout& layout) const override {
    return repeated(tokens_.image, layout.tokens());
  }

 private:
  int64_t least_ = 0, most_ = 0;  // pixels
};

const Registered<MakeImageProcessor> kQwen2Vl(
    image_processors, {"Qwen2VLImageProcessor",
                       [](const ImageSettings& settings, const PixelBounds& bounds) {
                         return std::make_unique<Qwen2VlProcessor>(settings, bounds);
                       },
                       "Qwen2.5-VL, Qwen3-VL, Qwen3.5: near the picture's size and aspect"});

}  // namespace
}  // namespace temper
