// Images of rows as external rows: what is known of them before their pixels are read, and what
// their source gives a tower.
#include "temper/models/vision/image_rows.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "temper/models/vision/encoder.h"
#include "tests/golden.h"

using namespace temper;

namespace {

ImageSpan span_of(const std::string& family, const std::string& file,
                  const PixelBounds& bounds = {}) {
  ImageSpan span;
  span.image = Image::open({.text = file, .bytes = {}}, golden_path("images/files"));
  span.processor = ImageProcessor::open(golden_path("images/models/" + family), bounds);
  span.begin = 3;
  span.count = span.processor->image_tokens(span.image->size());
  return span;
}

}  // namespace

TEST_CASE("an image's source gives the patches of all of its tiles, and how they lie") {
  for (const char* family : {"gemma3", "gemma4", "lfm2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm"}) {
    CAPTURE(family);
    const ImageSpan span = span_of(family, "cmyk.jpg");
    const ImageLayout layout = span.processor->layout(span.image->size());
    const ExternalRows row = models::external_rows({&span, 1}).at(0);
    CHECK(row.begin == 3);
    CHECK(row.count == layout.tokens());
    CHECK(row.digest.starts_with(span.image->digest()));
    CHECK(!row.features.defined());
    const auto* source = dynamic_cast<const models::PixelSource*>(row.source.get());
    REQUIRE(source != nullptr);
    const models::ImagePixels pixels = source->pixels();
    CHECK(pixels.values.sizes().vec() ==
          std::vector<int64_t>{layout.patches(), span.processor->patches().width()});
    CHECK(pixels.grid_rows == layout.tiles[0].rows);
    CHECK(pixels.grid_columns == layout.tiles[0].columns);
    REQUIRE(pixels.tiles.size() == layout.tiles.size());
    for (size_t i = 0; i < layout.tiles.size(); ++i)
      CHECK(pixels.tiles[i] ==
            std::array<int64_t, 2>{layout.tiles[i].rows, layout.tiles[i].columns});
  }
}

TEST_CASE("cells of a grid, and rows that see one another, are the processor's to say") {
  const auto row = [](const char* family) {
    const ImageSpan span = span_of(family, "grey.png");
    return models::external_rows({&span, 1}).at(0);
  };
  for (const char* family : {"qwen2_5_vl", "qwen3_vl"}) {
    CHECK(row(family).cells() == row(family).count);
    CHECK(!row(family).open);
  }
  CHECK(row("gemma3").open);
  CHECK(row("gemma3").cells() == 0);
  CHECK(!row("smolvlm").open);
  CHECK(row("lfm2_vl").cells() == 0);
}

TEST_CASE(
    "pictures have equal digests where a tower sees the same pixels of them, and only there") {
  const auto digest = [](const char* family, const char* file, const PixelBounds& bounds = {}) {
    const ImageSpan span = span_of(family, file, bounds);
    return models::external_rows({&span, 1}).at(0).digest;
  };
  const std::string usual = digest("qwen2_5_vl", "cmyk.jpg");
  CHECK(usual == digest("qwen2_5_vl", "cmyk.jpg"));
  CHECK(usual != digest("qwen2_5_vl", "grey.png"));
  const auto at_least = [&](int64_t pixels) {
    return digest("qwen2_5_vl", "cmyk.jpg", {.min = pixels});
  };
  const std::string large = at_least(1 << 18);
  CHECK(large != usual);
  CHECK(large == at_least(1 << 18));
  // Bounds that change nothing of this picture.
  CHECK(digest("qwen2_5_vl", "cmyk.jpg", {.max = 1 << 22}) ==
        digest("qwen2_5_vl", "cmyk.jpg", {.max = 1 << 23}));
}
