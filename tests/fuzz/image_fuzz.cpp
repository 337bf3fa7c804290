// Any bytes as an image file: a picture of the size that its header told, or a DataError. Seeds:
// tests/fuzz/seeds/image.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const ImageLimits limits{.max_bytes = 1 << 20, .max_pixels = 1 << 18};
  try {
    const ImageSize header = read_image_size(bytes, limits);
    const Picture picture = decode_image(bytes, limits);
    if (picture.width != header.width || picture.height != header.height) std::abort();
    if (picture.width * picture.height > limits.max_pixels) std::abort();
    if (picture.rgb.size() != static_cast<size_t>(3 * picture.width * picture.height)) std::abort();
    unsigned sum = 0;
    for (const uint8_t value : picture.rgb) sum += value;
    if (sum == 1u << 31) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
