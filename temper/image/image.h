// Images as files hold them: JPEG (libjpeg-turbo), PNG (libpng) and WebP (libwebp), told apart by
// their first bytes. Decoded as Pillow does, to the last bit: turned upright by the EXIF or XMP
// orientation (`ImageOps.exif_transpose`); grey, palettes, CMYK (inverted, as Adobe writes it) and
// 16 bits as `Image.convert("RGB")`; transparency put over white (`Image.alpha_composite`), as
// transformers does with images that Pillow opened. Color profiles and gamma are not applied.
//
// The bytes are hostile: sizes are compared with the limits before anything is allocated, and
// decoding takes time and memory in proportion to max_pixels (about 12 bytes a pixel) whatever the
// file claims: many scans of a progressive JPEG and large chunks of a PNG are errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace temper {

struct ImageLimits {
  size_t max_bytes = 20'000'000;     // of the file
  int64_t max_pixels = 100'000'000;  // width times height
};

// In pixels, upright.
struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};

struct Picture {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// Reads the header alone. Both throw DataError: "not a JPEG, PNG or WebP image (..)", too large,
// too many pixels, truncated, damaged; an animated WebP is refused, of a PNG the still image is
// taken. The message does not say which file it is.
ImageSize read_image_size(std::span<const std::byte> bytes, const ImageLimits& limits = {});
Picture decode_image(std::span<const std::byte> bytes, const ImageLimits& limits = {});

inline std::span<const std::byte> image_bytes(std::string_view bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

}  // namespace temper
