#include "temper/image/image.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "temper/base/error.h"
#include "temper/image/formats.h"

namespace temper {
namespace image_formats {

using namespace std::string_view_literals;

void check_size(int64_t width, int64_t height, const ImageLimits& limits) {
  check<DataError>(width > 0 && height > 0, "an image of ", width, " x ", height, " pixels");
  check<DataError>(width <= limits.max_pixels / height, "an image of ", width, " x ", height,
                   " pixels; at most ", limits.max_pixels, " are read");
}

Picture blank(int64_t width, int64_t height) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
}

namespace {

// What is often met where an image is expected, by the bytes at a place.
struct OtherKind {
  size_t at;
  std::string_view bytes;
  const char* text;
};
constexpr std::array kOtherKinds{
    OtherKind{0, "GIF8", "a GIF; convert it to PNG"},
    OtherKind{0, "BM", "a BMP; convert it to PNG"},
    OtherKind{0, "II*\0"sv, "a TIFF; convert it to PNG"},
    OtherKind{0, "MM\0*"sv, "a TIFF; convert it to PNG"},
    OtherKind{4, "ftyp", "AVIF, HEIC or a video; convert an image to PNG or JPEG"},
    OtherKind{0, "<svg", "SVG; draw it as PNG"},
    OtherKind{0, "version https://git-lfs", "a Git LFS pointer; `git lfs pull` gets the file"},
};

const char* what_else(std::string_view file) {
  if (file.empty()) return "no bytes";
  for (const OtherKind& kind : kOtherKinds)
    if (file.size() > kind.at && file.substr(kind.at).starts_with(kind.bytes)) return kind.text;
  return "by its first bytes";
}

const Format& format_of(Bytes bytes, const ImageLimits& limits) {
  check<DataError>(bytes.size() <= limits.max_bytes, "an image of ", bytes.size(),
                   " bytes; at most ", limits.max_bytes, " are read");
  for (const Format* format : {&kJpeg, &kPng, &kWebp})
    if (format->is(bytes)) return *format;
  throw DataError(str("not a JPEG, PNG or WebP image (", what_else(text_of(bytes)), ")"));
}

}  // namespace
}  // namespace image_formats

ImageSize read_image_size(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const image_formats::Header header =
      image_formats::format_of(bytes, limits).header(bytes, limits);
  if (header.orientation >= 5 && header.orientation <= 8) return {header.height, header.width};
  return {header.width, header.height};
}

Picture decode_image(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const image_formats::Format& format = image_formats::format_of(bytes, limits);
  const image_formats::Header header = format.header(bytes, limits);
  return image_formats::upright(format.pixels(bytes, limits), header.orientation);
}

}  // namespace temper
