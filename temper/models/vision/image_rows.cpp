#include "temper/models/vision/image_rows.h"

#include "temper/models/vision/encoder.h"
#include "temper/vision/pixels.h"

namespace temper::models {
namespace {

ImagePixels pixels_of(const ImageProcessor& processor, const Image& image) {
  const ProcessedImage processed = process_image(processor, image.decode());
  const std::vector<ImageTile>& tiles = processed.layout.tiles;
  ImagePixels image_pixels{processed.pixels, tiles.at(0).rows, tiles.at(0).columns};
  for (const ImageTile& tile : tiles) image_pixels.tiles.push_back({tile.rows, tile.columns});
  return image_pixels;
}

}  // namespace

std::vector<ExternalRows> external_rows(std::span<const ImageSpan> spans) {
  std::vector<ExternalRows> rows;
  for (const ImageSpan& span : spans) {
    const ImageReading& reading = span.processor->reading();
    ExternalRows& r = rows.emplace_back();
    r.begin = span.begin;
    r.count = span.count;
    r.first = span.first;
    r.digest = span.image->digest();
    r.open = reading.open;
    if (reading.grid) {
      const ImageTile tile = span.processor->layout(span.image->size()).tiles.at(0);
      r.grid_rows = tile.token_rows;
      r.grid_columns = tile.token_columns;
    }
    r.source =
        std::make_shared<PixelSource>([span] { return pixels_of(*span.processor, *span.image); });
  }
  return rows;
}

}  // namespace temper::models
