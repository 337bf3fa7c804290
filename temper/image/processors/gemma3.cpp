// Gemma3ImageProcessor: every picture is squashed to one square. Its cuts of wide pictures ("pan
// and scan"), which are off in the released models, are not computed.
#include "temper/image/processors/geometry.h"
#include "temper/image/settings.h"

namespace temper {
namespace {

using namespace image_processors_detail;

class Gemma3Processor : public ImageProcessor {
 public:
  Gemma3Processor(const ImageSettings& settings, const PixelBounds& bounds) {
    check<ConfigError>(!bounds.min && !bounds.max, settings.file(),
                       ": images of this model have one size; min_image_pixels and "
                       "max_image_pixels must be null");
    patches_.filter = ImageFilter::kBilinear;
    patches_.mean = patches_.std = {0.5, 0.5, 0.5};
    settings.read_values(patches_);
    check<ConfigError>(settings.flag("do_resize", true), settings.file(),
                       ": do_resize is false; expected true");
    settings.expect_off("do_center_crop");
    settings.expect_off("do_pan_and_scan");
    for (const char* key : {"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
                            "pan_and_scan_min_ratio_to_activate"})
      settings.ignore(key);
    size_ = settings.sides("size", {224, 224});
    patches_.size = settings.of_vision("patch_size", 16);
    settings.agree("size", size_.width, settings.of_vision("image_size", size_.width));
    check<ConfigError>(size_.width == size_.height && size_.width % patches_.size == 0,
                       settings.file(), ": size is ", size_.height, " x ", size_.width,
                       "; expected a square of whole patches of ", patches_.size);
    const int64_t tokens = settings.of_processor("image_seq_length", 256);
    settings.agree("image_seq_length", tokens, settings.of_model("mm_tokens_per_image", 256));
    side_ = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
    check<ConfigError>(side_ * side_ == tokens && size_.width / patches_.size % side_ == 0,
                       settings.file(), ": an image has ", tokens, " tokens; expected a square ",
                       "number whose root divides ", size_.width / patches_.size, " patches");
    reading_.open = true;
    tokens_.image = settings.token("image_token");
    tokens_.placeholder = tokens_.begin = settings.token("boi_token");
    tokens_.end = settings.token("eoi_token");
  }

  ImageLayout layout(const ImageSize& picture) const override {
    check_canvas(picture);
    ImageTile tile = whole_tile(0, size_, patches_.size, 1);
    tile.token_rows = tile.token_columns = side_;
    return {.canvases = {{.size = size_}}, .tiles = {tile}};
  }

  std::string expand(const ImageLayout& layout) const override {
    return str("\n\n", tokens_.begin, repeated(tokens_.image, layout.tokens()), tokens_.end,
               "\n\n");
  }

 private:
  ImageSize size_;
  int64_t side_ = 0;  // tokens
};

const Registered<MakeImageProcessor> kGemma3(
    image_processors, {"Gemma3ImageProcessor",
                       [](const ImageSettings& settings, const PixelBounds& bounds) {
                         return std::make_unique<Gemma3Processor>(settings, bounds);
                       },
                       "Gemma 3: squashed to one square"});

}  // namespace
}  // namespace temper
