// The pictures of tests/golden/images/pictures.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/image/image.h"
#include "tests/golden.h"

namespace temper {

inline std::string picture_models(const std::string& name) {
  return golden_path("images/models/" + name);
}

// As pattern() of make_image_goldens.py.
inline Picture pattern(int64_t width, int64_t height) {
  Picture picture{width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        picture.rgb.push_back(
            static_cast<uint8_t>(x * x / 5 + 3 * y * (c + 1) + x * y / 7 + 90 * c));
  return picture;
}

inline Picture golden_picture(const Json& golden) {
  if (!golden.contains("file")) return pattern(golden["width"], golden["height"]);
  const std::string name = golden["file"];
  return decode_image(image_bytes(read_file(golden_path("images/files/" + name))));
}

inline ImageSize golden_size(const Json& golden) {
  if (!golden.contains("file")) return {golden["width"], golden["height"]};
  const std::string name = golden["file"];
  return read_image_size(image_bytes(read_file(golden_path("images/files/" + name))));
}

}  // namespace temper
