#include "temper/models/vision/image_rows.h"

#include "temper/models/vision/encoder.h"
#include "temper/vision/pixels.h"

namespace temper::models {

std::vector<ExternalRows> ImageRows::of(const ImageSpans& spans) const {
  std::vector<ExternalRows> rows;
  for (const ImageSpan& span : spans) {
    ExternalRows& r = rows.emplace_back();
    r.begin = span.begin;
    r.count = span.count;
    r.first = span.first;
    r.digest = span.image->digest();
    r.open = family_.open;
    if (family_.grid) {
      const ImageTile tile = processor_->layout(span.image->size()).tiles.at(0);
      r.grid_rows = tile.token_rows;
      r.grid_columns = tile.token_columns;
    }
    r.source = std::make_shared<PixelSource>([processor = processor_, image = span.image] {
      const ProcessedImage processed = process_image(*processor, image->decode());
      const ImageTile& first = processed.layout.tiles.at(0);
      return ImagePixels{processed.pixels, first.rows, first.columns};
    });
  }
  return rows;
}

}  // namespace temper::models
