#include "temper/models/vision/image_rows.h"

#include "temper/base/error.h"
#include "temper/base/sha256.h"
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

struct SpanSource : PixelSource {
  explicit SpanSource(const ImageSpan& s)
      : PixelSource([span = s] { return pixels_of(*span.processor, *span.image); }), span(s) {}
  const ImageSpan span;
};

// Tells pixels apart: those of one picture differ where processors of other bounds resize or cut it
// otherwise, as those of two runs that share a tower.
std::string digest_of(const std::string& picture, const ImageLayout& layout) {
  std::string text = picture;
  for (const ImageCanvas& c : layout.canvases)
    text += str(' ', c.from, ':', c.size.width, 'x', c.size.height);
  for (const ImageTile& t : layout.tiles)
    text += str(' ', t.canvas, ':', t.left, ',', t.top, ':', t.rows, 'x', t.columns);
  return picture + sha256_hex(text);
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
    const ImageLayout layout = span.processor->layout(span.image->size());
    r.digest = digest_of(span.image->digest(), layout);
    r.open = reading.open;
    if (reading.grid) {
      const ImageTile& tile = layout.tiles.at(0);
      r.grid_rows = tile.token_rows;
      r.grid_columns = tile.token_columns;
    }
    r.source = std::make_shared<SpanSource>(span);
  }
  return rows;
}

ImageSpans image_spans(std::span<const ExternalRows> rows) {
  ImageSpans spans;
  for (const ExternalRows& r : rows) {
    const auto* const source = dynamic_cast<const SpanSource*>(r.source.get());
    check(source != nullptr,
          "rows in place of tokens' embeddings that are no image do not go to "
          "other programs");
    spans.push_back({r.begin, r.count, r.first, source->span.image, source->span.processor});
  }
  return spans;
}

}  // namespace temper::models
