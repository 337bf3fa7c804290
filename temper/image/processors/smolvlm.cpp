// SmolVLMImageProcessor and Idefics3ImageProcessor, which are the same: the picture is resized to a
// longest side, then to whole square tiles, which are cut out; the whole as one more tile follows.
#include "temper/image/processors/geometry.h"
#include "temper/image/settings.h"

namespace temper {
namespace {

using namespace image_processors_detail;

constexpr int64_t kLongestSide = 4096;

class SmolVlmProcessor : public ImageProcessor {
 public:
  SmolVlmProcessor(const ImageSettings& settings, const PixelBounds& bounds) {
    check<ConfigError>(!bounds.min && !bounds.max, settings.file(),
                       ": images of this model are made of tiles of one size; min_image_pixels "
                       "and max_image_pixels must be null");
    patches_.filter = ImageFilter::kLanczos;
    patches_.mean = patches_.std = {0.5, 0.5, 0.5};
    settings.read_values(patches_);
    check<ConfigError>(settings.flag("do_resize", true), settings.file(),
                       ": do_resize is false; expected true");
    settings.expect_off("do_center_crop");
    split_ = settings.flag("do_image_splitting", true);
    longest_ = settings.within("size", "longest_edge", 4 * 364);
    tile_ = settings.within("max_image_size", "longest_edge", 364);
    for (const int64_t side : {longest_, tile_})
      check<ConfigError>(side <= 16384, settings.file(), ": longest_edge is ", side,
                         "; expected at most 16384");
    patches_.size = settings.of_vision("patch_size", 32);
    const int64_t shuffle = settings.of_model("scale_factor", 2);
    settings.agree("max_image_size", tile_, settings.of_vision("image_size", tile_));
    check<ConfigError>(tile_ / patches_.size >= shuffle, settings.file(), ": max_image_size is ",
                       tile_, "; expected at least ", shuffle, " patches of ", patches_.size);
    side_ = tile_ / patches_.size / shuffle;
    settings.agree("image_seq_len", settings.of_processor("image_seq_len", 169), side_ * side_);
    tokens_.image = tokens_.placeholder = settings.token("image_token", "<image>");
    tokens_.begin = tokens_.end = settings.token("fake_image_token", "<fake_token_around_image>");
    whole_mark_ = settings.token("global_image_token", "<global-img>");
  }

  ImageLayout layout(const ImageSize& picture) const override {
    check_canvas(picture);
    const ImageSize square{tile_, tile_};
    const ImageSize first = longest_canvas(picture);
    check_canvas(first);
    ImageLayout layout;
    layout.canvases = {{.size = first}};
    if (!split_) {
      layout.canvases.push_back({.from = 0, .size = square});
      layout.tiles = {tile_at(1, 0, 0)};
      return layout;
    }
    const ImageSize second = tiled_canvas(first);
    check_canvas(second);
    layout.canvases.push_back({.from = 0, .size = second});
    const int64_t rows = second.height / tile_, columns = second.width / tile_;
    check_tokens(rows * columns, side_ * side_);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        layout.tiles.push_back(tile_at(1, row, column));
    if (rows * columns == 1) return layout;
    layout.grid_rows = rows;
    layout.grid_columns = columns;
    layout.canvases.push_back({.from = 1, .size = square});
    layout.tiles.push_back(tile_at(2, 0, 0));
    return layout;
  }

  std::string expand(const ImageLayout& layout) const override {
    const std::string images = repeated(tokens_.image, side_ * side_);
    std::string out;
    for (int64_t row = 1; row <= layout.grid_rows; ++row) {
      for (int64_t column = 1; column <= layout.grid_columns; ++column)
        out += str(tokens_.begin, "<row_", row, "_col_", column, ">", images);
      out += "\n";
    }
    if (layout.grid_rows > 0) out += "\n";
    return out + tokens_.begin + whole_mark_ + images + tokens_.end;
  }

 private:
  // _resize_output_size_rescale_to_max_len, then _scale_below_upper_bound of transformers.
  ImageSize longest_canvas(const ImageSize& picture) const {
    const double aspect = static_cast<double>(picture.width) / static_cast<double>(picture.height);
    const auto side = static_cast<double>(longest_);
    ImageSize size{longest_, longest_};
    if (picture.width >= picture.height) {
      size.height = static_cast<int64_t>(side / aspect);
      size.height += size.height % 2;
    } else {
      size.width = static_cast<int64_t>(side * aspect);
      size.width += size.width % 2;
    }
    size = {std::max<int64_t>(size.width, 1), std::max<int64_t>(size.height, 1)};
    const double scaled = static_cast<double>(size.width) / static_cast<double>(size.height);
    if (size.width >= size.height && size.width > kLongestSide)
      size = {kLongestSide, static_cast<int64_t>(kLongestSide / scaled)};
    else if (size.height > size.width && size.height > kLongestSide)
      size = {static_cast<int64_t>(kLongestSide * scaled), kLongestSide};
    return {std::max<int64_t>(size.width, 1), std::max<int64_t>(size.height, 1)};
  }

  // resize_for_vision_encoder of transformers.
  ImageSize tiled_canvas(const ImageSize& size) const {
    const double aspect = static_cast<double>(size.width) / static_cast<double>(size.height);
    const auto up = [&](int64_t side) { return ceil_div(side, tile_) * tile_; };
    if (size.width >= size.height) {
      const int64_t width = up(size.width);
      return {width, up(static_cast<int64_t>(static_cast<double>(width) / aspect))};
    }
    const int64_t height = up(size.height);
    return {up(static_cast<int64_t>(static_cast<double>(height) * aspect)), height};
  }

  ImageTile tile_at(int canvas, int64_t row, int64_t column) const {
    return {.canvas = canvas,
            .left = column * tile_,
            .top = row * tile_,
            .rows = tile_ / patches_.size,
            .columns = tile_ / patches_.size,
            .token_rows = side_,
            .token_columns = side_};
  }

  bool split_ = true;
  int64_t longest_ = 0, tile_ = 0;  // pixels
  int64_t side_ = 0;                // tokens of a tile's side
  std::string whole_mark_;
};

std::unique_ptr<const ImageProcessor> make_smolvlm(const ImageSettings& settings,
                                                   const PixelBounds& bounds) {
  return std::make_unique<SmolVlmProcessor>(settings, bounds);
}

const Registered<MakeImageProcessor> kSmolVlm(image_processors,
                                              {"SmolVLMImageProcessor", make_smolvlm,
                                               "SmolVLM2: square tiles and the whole"});
const Registered<MakeImageProcessor> kIdefics3(image_processors,
                                               {"Idefics3ImageProcessor", make_smolvlm,
                                                "SmolVLM: square tiles and the whole"});

}  // namespace
}  // namespace temper
