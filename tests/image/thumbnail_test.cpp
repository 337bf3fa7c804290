// Small pictures for pages.
#include "temper/image/thumbnail.h"

#include <doctest/doctest.h>

#include <string>

using namespace temper;

TEST_CASE("a small picture has the mean colors of the large one, and a PNG the same pixels") {
  Picture picture{6, 4, {}};
  for (int64_t y = 0; y < 4; ++y)
    for (int64_t x = 0; x < 6; ++x)
      for (int64_t c = 0; c < 3; ++c)
        picture.rgb.push_back(static_cast<uint8_t>(x < 3 ? 10 * c : 100 + y));
  CHECK(shrunk(picture, 6).rgb == picture.rgb);
  const Picture small = shrunk(picture, 2);
  CHECK(small.width == 2);
  CHECK(small.height == 1);
  CHECK(small.rgb == std::vector<uint8_t>{0, 10, 20, 102, 102, 102});  // 101.5, halves up
  for (const Picture& one : {picture, small}) {
    const std::string png = to_png(one);
    const Picture again = decode_image(image_bytes(png));
    CHECK(again.width == one.width);
    CHECK(again.rgb == one.rgb);
  }
  CHECK(shrunk({1000, 1, std::vector<uint8_t>(3000, 7)}, 10).height == 1);
}
