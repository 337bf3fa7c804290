// Arithmetic of sizes as Python does it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/image/processor.h"

namespace temper::image_processors_detail {

// round(x / factor) * factor: halves go to the even number.
inline int64_t rounded(double value, int64_t factor) {
  return static_cast<int64_t>(std::nearbyint(value / static_cast<double>(factor))) * factor;
}
inline int64_t floored(double value, int64_t factor) {
  return static_cast<int64_t>(std::floor(value / static_cast<double>(factor))) * factor;
}
inline int64_t ceiled(double value, int64_t factor) {
  return static_cast<int64_t>(std::ceil(value / static_cast<double>(factor))) * factor;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

inline std::string repeated(std::string_view text, int64_t times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

// A canvas never has more pixels than this, whatever configs and thin pictures ask for.
constexpr int64_t kMostCanvasPixels = 200'000'000;
inline void check_canvas(const ImageSize& size) {
  check<DataError>(
      size.width > 0 && size.height > 0 && size.width <= kMostCanvasPixels / size.height,
      "an image would be resized to ", size.width, " x ", size.height, " pixels");
}

// Nor does an image take more tokens than this.
constexpr int64_t kMostTokens = int64_t{1} << 22;
inline void check_tokens(int64_t tiles, int64_t tokens_of_tile) {
  check<DataError>(tiles <= kMostTokens / std::max<int64_t>(tokens_of_tile, 1),
                   "an image would become ", tiles, " tiles of ", tokens_of_tile,
                   " tokens; at most ", kMostTokens, " tokens are possible");
}

// The whole canvas as one tile.
inline ImageTile whole_tile(int canvas, const ImageSize& size, int64_t patch, int64_t merge) {
  const ImageTile tile{.canvas = canvas,
                       .rows = size.height / patch,
                       .columns = size.width / patch,
                       .token_rows = ceil_div(size.height / patch, merge),
                       .token_columns = ceil_div(size.width / patch, merge)};
  check_tokens(1, tile.tokens());
  return tile;
}

}  // namespace temper::image_processors_detail
