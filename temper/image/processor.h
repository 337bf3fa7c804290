// What a model makes of an image, as its preprocessor_config.json or processor_config.json says:
// sizes, tiles, tokens and text. The definition is transformers 5.24's default image processors
// (and the processors around them). Pixels: vision/pixels.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/image/image.h"

namespace temper {

enum class ImageFilter { kBilinear, kBicubic, kLanczos };

// A picture that is resized as a whole; the parts that the tower sees are cut out of it.
struct ImageCanvas {
  int from = -1;  // the canvas of this number is resized; -1: the picture
  ImageSize size = {};
};

// A part that the tower sees as one image: of a canvas the box from (left, top). In patches and in
// tokens (features after the projector), which are in row-major order; the patches' order:
// ImagePatches.
struct ImageTile {
  int canvas = 0;
  int64_t left = 0, top = 0;                  // pixels
  int64_t rows = 0, columns = 0;              // patches
  int64_t token_rows = 0, token_columns = 0;  // tokens
  int64_t tokens() const { return token_rows * token_columns; }
};

// All of it follows from the picture's size.
struct ImageLayout {
  std::vector<ImageCanvas> canvases = {};
  std::vector<ImageTile> tiles = {};  // in the order of the tokens
  // Tiles of a picture that is cut into a grid, which a thumbnail follows; 0: not cut.
  int64_t grid_rows = 0, grid_columns = 0;
  int64_t patches() const;
  int64_t tokens() const;  // placeholders that it takes in a row's ids
};

// How a tile's pixels are cut into patches and normalized.
struct ImagePatches {
  int64_t size = 0;  // sides, pixels
  // Patches are in row-major order of blocks of merge x merge, and so within the block.
  int64_t merge = 1;
  int64_t time = 1;            // copies of the picture
  bool channels_last = false;  // a patch is [channels, time, size, size], or [size, size, channels]
  ImageFilter filter = ImageFilter::kBicubic;
  bool rescale = true, normalize = true;
  double rescale_factor = 1 / 255.;
  std::array<double, 3> mean{}, std{};
  int64_t width() const { return 3 * time * size * size; }  // numbers of a patch
};

// `data.min_image_pixels`, `data.max_image_pixels`; width times height as the tower sees it.
struct PixelBounds {
  std::optional<int64_t> min = {}, max = {};
};

// The texts of tokens, as the tokenizer's files name them.
struct ImageTokens {
  std::string placeholder;  // what chat templates write for an image
  std::string image;        // the token that is repeated: where features stand
  std::string begin, end;   // around an image, written by expand(); may be empty
};

// How the language model reads an image's tokens (ExternalRows, ops/forest.h): as the cells of a
// grid, with rotary positions of their own, and both ways within the image.
struct ImageReading {
  bool grid = false, open = false;
};

class ImageProcessor {
 public:
  // Reads preprocessor_config.json (or the part of processor_config.json), processor_config.json,
  // tokenizer_config.json and the vision section of config.json. Throws ConfigError: an unknown
  // processor, a key that is not known to have no influence on pixels, a value out of range, bounds
  // that this family does not have. DataError: no such file, no JSON.
  static std::unique_ptr<const ImageProcessor> open(const std::string& directory,
                                                    const PixelBounds& bounds = {});
  virtual ~ImageProcessor() = default;

  const ImagePatches& patches() const { return patches_; }
  const ImageTokens& tokens() const { return tokens_; }
  const ImageReading& reading() const { return reading_; }

  // Throws DataError where transformers refuses the shape (an aspect ratio above 200, ..).
  virtual ImageLayout layout(const ImageSize& picture) const = 0;
  int64_t image_tokens(const ImageSize& picture) const { return layout(picture).tokens(); }
  // What stands in place of the placeholder: the image tokens with what is around them. Its
  // layout.tokens() occurrences of tokens().image are the rows of the image's features.
  virtual std::string expand(const ImageLayout& layout) const = 0;

 protected:
  ImagePatches patches_;
  ImageTokens tokens_;
  ImageReading reading_;
};

// The id of the token that stands for features, as a config.json names it; none where it does not.
std::optional<int32_t> image_token_of(const Json& config);

// The settings that a processor is made of.
class ImageSettings;
using MakeImageProcessor =
    std::function<std::unique_ptr<const ImageProcessor>(const ImageSettings&, const PixelBounds&)>;
// By image_processor_type, without the ending "Fast".
Registry<MakeImageProcessor>& image_processors();

}  // namespace temper
