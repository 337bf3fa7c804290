// One decoder a format, and what they share. Each reads hostile bytes: it checks sizes first.
#pragma once

#include <span>
#include <string_view>

#include "temper/image/image.h"

namespace temper::image_formats {

using Bytes = std::span<const std::byte>;

struct Header {
  int64_t width = 0, height = 0;  // as stored
  int orientation = 1;            // 1..8, of EXIF; other numbers mean 1
};

struct Format {
  std::string_view name;
  bool (*is)(Bytes);
  Header (*header)(Bytes, const ImageLimits&);
  // The pixels as stored, before they are turned.
  Picture (*pixels)(Bytes, const ImageLimits&);
};
extern const Format kJpeg, kPng, kWebp;

// Throws DataError for sides below 1 and more pixels than the limit.
void check_size(int64_t width, int64_t height, const ImageLimits& limits);
// The picture of this size, without values.
Picture blank(int64_t width, int64_t height);

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline uint32_t number_at(Bytes bytes, size_t at, int size, bool big_endian) {
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) {
    const auto byte = static_cast<uint32_t>(bytes[at + static_cast<size_t>(i)]);
    value |= byte << 8 * (big_endian ? size - 1 - i : i);
  }
  return value;
}

// The orientation that EXIF data (TIFF, perhaps after "Exif\0\0") or else XMP tell; 1 without.
int orientation_of(Bytes exif, std::string_view xmp);
// Turned and mirrored as the orientation says.
Picture upright(Picture picture, int orientation);

// A value over white, as Pillow's alpha_composite computes it in integers.
inline uint8_t over_white(uint8_t value, uint8_t alpha) {
  constexpr uint32_t kBits = 7;
  if (alpha == 0) return 255;
  const uint32_t part = uint32_t{alpha} * 255 * 255 * (1 << kBits) / (255 * 255);
  const uint32_t sum = value * part + 255 * (255 * (1 << kBits) - part) + (0x80 << kBits);
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8 >> kBits);
}

}  // namespace temper::image_formats
