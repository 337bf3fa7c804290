// Gemma4ImageProcessor: the largest canvas of the picture's aspect that has no more than so many
// tokens, and sides of whole pooled patches.
#include <array>

#include "temper/image/processors/geometry.h"
#include "temper/image/settings.h"

namespace temper {
namespace {

using namespace image_processors_detail;

constexpr auto kTokenCounts = std::to_array<int64_t>({70, 140, 280, 560, 1120});

class Gemma4Processor : public ImageProcessor {
 public:
  Gemma4Processor(const ImageSettings& settings, const PixelBounds& bounds) {
    patches_.normalize = false;
    patches_.std = {1, 1, 1};
    patches_.channels_last = true;
    settings.read_values(patches_);
    check<ConfigError>(settings.flag("do_resize", true), settings.file(),
                       ": do_resize is false; expected true");
    settings.expect_off("do_center_crop");
    settings.ignore("size");  // the canvas follows from the numbers below
    patches_.size = settings.whole("patch_size", 16, 1, 1024);
    pool_ = settings.whole("pooling_kernel_size", 3, 1, 64);
    most_tokens_ = settings.whole("max_soft_tokens", 280, 1, 1120);
    check<ConfigError>(std::ranges::find(kTokenCounts, most_tokens_) != kTokenCounts.end(),
                       settings.file(), ": max_soft_tokens is ", most_tokens_,
                       "; expected 70, 140, 280, 560 or 1120");
    bound(settings, bounds);
    settings.agree("patch_size", patches_.size, settings.of_vision("patch_size", patches_.size));
    settings.agree("pooling_kernel_size", pool_, settings.of_vision("pooling_kernel_size", pool_));
    reading_.open = settings.text_of_language("use_bidirectional_attention") == "vision";
    tokens_.image = tokens_.placeholder = settings.token("image_token");
    tokens_.begin = settings.token("boi_token");
    tokens_.end = settings.token("eoi_token");
  }

  // get_aspect_ratio_preserving_size of transformers.
  ImageLayout layout(const ImageSize& picture) const override {
    const int64_t side = pool_ * patches_.size;
    const int64_t most = most_tokens_ * side * side;
    const auto width = static_cast<double>(picture.width);
    const auto height = static_cast<double>(picture.height);
    const double factor = std::sqrt(static_cast<double>(most) / (height * width));
    ImageSize size{floored(factor * width, side), floored(factor * height, side)};
    check<DataError>(size.width > 0 || size.height > 0, "an image of ", picture.width, " x ",
                     picture.height, " pixels becomes none");
    const int64_t longest = most_tokens_ * side;
    if (size.height == 0)
      size = {std::min(floored(width / height, 1) * side, longest), side};
    else if (size.width == 0)
      size = {side, std::min(floored(height / width, 1) * side, longest)};
    check<DataError>(size.width * size.height <= most, "an image of ", picture.width, " x ",
                     picture.height, " pixels becomes ", size.width, " x ", size.height,
                     "; expected at most ", most, " pixels");
    check_canvas(size);
    return {.canvases = {{.size = size}}, .tiles = {whole_tile(0, size, patches_.size, pool_)}};
  }

  std::string expand(const ImageLayout& layout) const override {
    return tokens_.begin + repeated(tokens_.image, layout.tokens()) + tokens_.end;
  }

 private:
  // The numbers of tokens are few: the largest whose pixels are within the bound.
  void bound(const ImageSettings& settings, const PixelBounds& bounds) {
    check<ConfigError>(!bounds.min, settings.file(),
                       ": this model's images are as large as max_image_pixels allows; "
                       "min_image_pixels must be null");
    if (!bounds.max) return;
    const int64_t token = pool_ * patches_.size * pool_ * patches_.size;
    check<ConfigError>(*bounds.max >= kTokenCounts.front() * token, settings.file(),
                       ": max_image_pixels is ", *bounds.max, "; expected at least ",
                       kTokenCounts.front() * token, " (70 tokens)");
    for (const int64_t count : kTokenCounts)
      if (count * token <= *bounds.max) most_tokens_ = count;
  }

  int64_t pool_ = 0, most_tokens_ = 0;
};

const Registered<MakeImageProcessor> kGemma4(
    image_processors, {"Gemma4ImageProcessor",
                       [](const ImageSettings& settings, const PixelBounds& bounds) {
                         return std::make_unique<Gemma4Processor>(settings, bounds);
                       },
                       "Gemma 4: of the picture's aspect, up to a number of tokens"});

}  // namespace
}  // namespace temper
