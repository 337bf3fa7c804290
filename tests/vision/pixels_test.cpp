// Goldens: tests/golden/make_image_goldens.py.
#include "temper/vision/pixels.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/sha256.h"
#include "tests/image/pictures.h"

namespace temper {
namespace {

std::string digest_of(const at::Tensor& pixels) {
  const auto* data = static_cast<const char*>(pixels.const_data_ptr());
  return sha256_hex({data, static_cast<size_t>(pixels.nbytes())});
}

TEST_CASE("pixels are transformers' to the last bit") {
  size_t compared = 0;
  for (const Json& golden : read_json_file(golden_path("images/pictures.json"))) {
    if (!golden.contains("pixels")) continue;
    CAPTURE(dump_json(golden));
    const auto processor = ImageProcessor::open(picture_models(golden["model"]));
    const ProcessedImage image = process_image(*processor, golden_picture(golden));
    CHECK(image.pixels.size(0) == golden["patches"][0].get<int64_t>());
    CHECK(image.pixels.size(1) == golden["patches"][1].get<int64_t>());
    CHECK(digest_of(image.pixels) == golden["pixels"].get<std::string>());
    ++compared;
  }
  CHECK(compared >= 48);
}

TEST_CASE("patches of a merged block follow each other, and a still image is repeated in time") {
  const auto processor = ImageProcessor::open(picture_models("qwen3_vl"));
  const Picture picture = pattern(320, 256);  // not resized
  const ProcessedImage image = process_image(*processor, picture);
  REQUIRE(image.layout.canvases[0].size.width == 320);
  REQUIRE(image.layout.canvases[0].size.height == 256);
  const at::Tensor pixels = image.pixels.view({8, 10, 2, 2, 3, 2, 16, 16});
  const auto at = [&](int64_t x, int64_t y, int64_t c, int64_t t) {
    return pixels[y / 32][x / 32][y / 16 % 2][x / 16 % 2][c][t][y % 16][x % 16].item<float>();
  };
  for (const auto& [x, y, c] :
       {std::array<int64_t, 3>{0, 0, 0}, {17, 3, 1}, {319, 255, 2}, {100, 200, 0}, {33, 47, 2}}) {
    const uint8_t byte = picture.rgb[static_cast<size_t>(3 * (y * 320 + x) + c)];
    CHECK(at(x, y, c, 0) == (static_cast<float>(byte) - 127.5F) / 127.5F);
    CHECK(at(x, y, c, 1) == at(x, y, c, 0));
  }
}

}  // namespace
}  // namespace temper
