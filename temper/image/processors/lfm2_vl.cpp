// Lfm2VlImageProcessor: a small picture is one canvas near its own size; a large one is cut into a
// grid of square tiles, and a small canvas of the whole ("thumbnail") follows.
#include "temper/image/processors/geometry.h"
#include "temper/image/settings.h"

namespace temper {
namespace {

using namespace image_processors_detail;

class Lfm2VlProcessor : public ImageProcessor {
 public:
  Lfm2VlProcessor(const ImageSettings& settings, const PixelBounds& bounds) {
    patches_.filter = ImageFilter::kBilinear;
    patches_.mean = patches_.std = {0.5, 0.5, 0.5};
    patches_.channels_last = true;
    settings.read_values(patches_);
    settings.ignore("do_resize");  // transformers resizes in any case,
    settings.ignore("size");       // to sizes that follow from the numbers below
    settings.expect_off("do_center_crop");
    patches_.size = settings.whole("encoder_patch_size", 16, 1, 1024);
    shrink_ = settings.whole("downsample_factor", 2, 1, 64);
    split_ = settings.flag("do_image_splitting", true);
    min_tiles_ = settings.whole("min_tiles", 2, 1, 1024);
    max_tiles_ = settings.whole("max_tiles", 10, 1, 1024);
    check<ConfigError>(!split_ || min_tiles_ <= max_tiles_, settings.file(), ": min_tiles is ",
                       min_tiles_, " and max_tiles ", max_tiles_);
    thumbnail_ = settings.flag("use_thumbnail", true);
    tile_ = settings.whole("tile_size", 512, 1, 8192);
    check<ConfigError>(tile_ % patches_.size == 0, settings.file(), ": tile_size is ", tile_,
                       "; expected a multiple of encoder_patch_size, ", patches_.size);
    tolerance_ = settings.number("max_pixels_tolerance", 2, 0, 1e6);
    min_tokens_ = settings.whole("min_image_tokens", 64, 1, 1 << 20);
    max_tokens_ = settings.whole("max_image_tokens", 256, 1, 1 << 20);
    const int64_t token = factor() * factor();
    if (bounds.min) min_tokens_ = ceil_div(*bounds.min, token);
    if (bounds.max) max_tokens_ = *bounds.max / token;
    check<ConfigError>(min_tokens_ <= max_tokens_ && max_tokens_ <= 1 << 20, settings.file(),
                       ": images of at least ", min_tokens_, " and at most ", max_tokens_,
                       " tokens of ", token, " pixels");
    marks_ = settings.processor_flag("use_image_special_tokens", true);
    settings.agree("encoder_patch_size", patches_.size,
                   settings.of_vision("patch_size", patches_.size));
    settings.agree("downsample_factor", shrink_, settings.of_model("downsample_factor", shrink_));
    tokens_.image = tokens_.placeholder = settings.token("image_token", "<image>");
    tokens_.begin = marks_ ? settings.token("image_start_token", "<|image_start|>") : "";
    tokens_.end = marks_ ? settings.token("image_end_token", "<|image_end|>") : "";
    whole_mark_ = settings.token("image_thumbnail_token", "<|img_thumbnail|>");
  }

  ImageLayout layout(const ImageSize& picture) const override {
    check_canvas(picture);
    const ImageSize small = small_canvas(picture);
    check_canvas(small);
    ImageLayout layout;
    if (split_ && max_tiles_ > 1 && is_large(picture)) {
      cut(picture, small, layout);
    } else {
      layout.canvases = {{.size = small}};
      layout.tiles = {whole_tile(0, small, patches_.size, shrink_)};
    }
    // transformers' own arrays have room for no more.
    const int64_t grid = split_ ? (tile_ / patches_.size) * (tile_ / patches_.size) : 0;
    const int64_t room = std::max(max_tokens_ * shrink_ * shrink_, grid);
    for (const ImageTile& tile : layout.tiles)
      check<DataError>(tile.rows * tile.columns <= room, "an image of ", picture.width, " x ",
                       picture.height, " pixels is too thin: it becomes ", tile.columns, " x ",
                       tile.rows, " patches; at most ", room, " are possible");
    return layout;
  }

  std::string expand(const ImageLayout& layout) const override {
    std::string out = tokens_.begin;
    size_t k = 0;
    for (int64_t row = 1; row <= layout.grid_rows; ++row)
      for (int64_t column = 1; column <= layout.grid_columns; ++column) {
        if (marks_) out += str("<|img_row_", row, "_col_", column, "|>");
        out += repeated(tokens_.image, layout.tiles[k++].tokens());
      }
    for (; k < layout.tiles.size(); ++k) {
      if (marks_ && k > 0) out += whole_mark_;
      out += repeated(tokens_.image, layout.tiles[k].tokens());
    }
    return out + tokens_.end;
  }

 private:
  int64_t factor() const { return patches_.size * shrink_; }

  // smart_resize of Lfm2VlImageProcessor.
  ImageSize small_canvas(const ImageSize& picture) const {
    const auto width = static_cast<double>(picture.width);
    const auto height = static_cast<double>(picture.height);
    const int64_t least = min_tokens_ * factor() * factor();
    const int64_t most = max_tokens_ * factor() * factor();
    ImageSize size{std::max(factor(), rounded(width, factor())),
                   std::max(factor(), rounded(height, factor()))};
    if (size.width * size.height > most) {
      const double beta = std::sqrt(height * width / static_cast<double>(most));
      size = {std::max(factor(), floored(width / beta, factor())),
              std::max(factor(), floored(height / beta, factor()))};
    } else if (size.width * size.height < least) {
      const double beta = std::sqrt(static_cast<double>(least) / (height * width));
      size = {ceiled(width * beta, factor()), ceiled(height * beta, factor())};
    }
    return size;
  }

  bool is_large(const ImageSize& picture) const {
    const int64_t width =
        std::max(patches_.size, rounded(static_cast<double>(picture.width), factor()));
    const int64_t height =
        std::max(patches_.size, rounded(static_cast<double>(picture.height), factor()));
    return static_cast<double>(width * height) >
           static_cast<double>(max_tokens_ * factor() * factor()) * tolerance_;
  }

  // Columns and rows of tiles whose aspect is nearest; of equally near ones the later, if the
  // picture fills more than half of its pixels. In order of their number, then of columns.
  ImageSize grid_of(const ImageSize& picture) const {
    const double aspect = static_cast<double>(picture.width) / static_cast<double>(picture.height);
    const auto area = static_cast<double>(picture.width * picture.height);
    ImageSize best{1, 1};
    double best_difference = INFINITY;
    for (int64_t count = min_tiles_; count <= max_tiles_; ++count)
      for (int64_t columns = 1; columns <= count; ++columns) {
        if (count % columns != 0) continue;
        const int64_t rows = count / columns;
        const double difference =
            std::abs(aspect - static_cast<double>(columns) / static_cast<double>(rows));
        const bool nearer = difference < best_difference;
        const bool filled = area > 0.5 * static_cast<double>(tile_ * tile_ * count);
        if (nearer || (difference == best_difference && filled)) best = {columns, rows};
        best_difference = std::min(best_difference, difference);
      }
    return best;
  }

  void cut(const ImageSize& picture, const ImageSize& small, ImageLayout& layout) const {
    const ImageSize grid = grid_of(picture);
    const ImageSize size{grid.width * tile_, grid.height * tile_};
    check_canvas(size);
    layout.canvases = {{.size = size}};
    for (int64_t row = 0; row < grid.height; ++row)
      for (int64_t column = 0; column < grid.width; ++column) {
        ImageTile tile = whole_tile(0, {tile_, tile_}, patches_.size, shrink_);
        tile.left = column * tile_;
        tile.top = row * tile_;
        layout.tiles.push_back(tile);
      }
    if (grid.width * grid.height == 1) return;
    layout.grid_rows = grid.height;
    layout.grid_columns = grid.width;
    if (!thumbnail_) return;
    layout.canvases.push_back({.size = small});
    layout.tiles.push_back(whole_tile(1, small, patches_.size, shrink_));
  }

  int64_t shrink_ = 0, min_tiles_ = 0, max_tiles_ = 0, tile_ = 0, min_tokens_ = 0, max_tokens_ = 0;
  double tolerance_ = 0;
  bool split_ = true, thumbnail_ = true, marks_ = true;
  std::string whole_mark_;
};

const Registered<MakeImageProcessor> kLfm2Vl(
    image_processors, {"Lfm2VlImageProcessor",
                       [](const ImageSettings& settings, const PixelBounds& bounds) {
                         return std::make_unique<Lfm2VlProcessor>(settings, bounds);
                       },
                       "LFM2-VL: near the picture's size, or tiles and a thumbnail"});

}  // namespace
}  // namespace temper
