#include "temper/image/thumbnail.h"

#include <png.h>

#include <algorithm>

#include "temper/base/error.h"

namespace temper {

Picture shrunk(const Picture& picture, int64_t side) {
  const int64_t longest = std::max(picture.width, picture.height);
  if (longest <= side) return picture;
  Picture out;
  out.width = std::max<int64_t>(1, picture.width * side / longest);
  out.height = std::max<int64_t>(1, picture.height * side / longest);
  out.rgb.reserve(static_cast<size_t>(3 * out.width * out.height));
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      const int64_t top = y * picture.height / out.height,
                    bottom = (y + 1) * picture.height / out.height,
                    left = x * picture.width / out.width,
                    right = (x + 1) * picture.width / out.width;
      for (int64_t c = 0; c < 3; ++c) {
        uint64_t sum = 0;
        for (int64_t v = top; v < bottom; ++v)
          for (int64_t u = left; u < right; ++u)
            sum += picture.rgb[static_cast<size_t>(3 * (v * picture.width + u) + c)];
        const auto count = static_cast<uint64_t>((bottom - top) * (right - left));
        out.rgb.push_back(static_cast<uint8_t>((sum + count / 2) / count));
      }
    }
  return out;
}

std::string to_png(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  const int made =
      ::png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.rgb.data(), 0, nullptr);
  check(made != 0, "libpng: ", static_cast<const char*>(image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace temper
