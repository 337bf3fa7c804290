// WebP by libwebp with its defaults.
#include <webp/decode.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/image/formats.h"

namespace temper::image_formats {
namespace {

bool is_webp(Bytes bytes) {
  const std::string_view text = text_of(bytes.first(std::min<size_t>(bytes.size(), 12)));
  return text.starts_with("RIFF") && text.ends_with("WEBP") && text.size() == 12;
}

WebPBitstreamFeatures webp_features(Bytes bytes, const ImageLimits& limits) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status =
      ::WebPGetFeatures(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &features);
  check<DataError>(status != VP8_STATUS_NOT_ENOUGH_DATA, "a truncated WebP image (its header)");
  check<DataError>(status == VP8_STATUS_OK, "a damaged WebP image (its header)");
  check<DataError>(!features.has_animation, "an animated WebP image; expected a still one");
  check_size(features.width, features.height, limits);
  return features;
}

Header webp_header(Bytes bytes, const ImageLimits& limits) {
  const WebPBitstreamFeatures features = webp_features(bytes, limits);
  Bytes exif;
  std::string_view xmp;
  for (size_t at = 12; bytes.size() - at >= 8;) {
    const size_t size = number_at(bytes, at + 4, 4, false);
    if (bytes.size() - at - 8 < size) break;
    const std::string_view kind = text_of(bytes.subspan(at, 4));
    if (kind == "EXIF" && exif.empty()) exif = bytes.subspan(at + 8, size);
    if (kind == "XMP " && xmp.empty()) xmp = text_of(bytes.subspan(at + 8, size));
    at += std::min(8 + size + size % 2, bytes.size() - at);
  }
  return {features.width, features.height, orientation_of(exif, xmp)};
}

Picture webp_pixels(Bytes bytes, const ImageLimits& limits) {
  const WebPBitstreamFeatures features = webp_features(bytes, limits);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  Picture picture = blank(features.width, features.height);
  const size_t pixels = picture.rgb.size() / 3;
  bool done = false;
  if (features.has_alpha) {
    std::vector<uint8_t> rgba(4 * pixels);
    done = ::WebPDecodeRGBAInto(data, bytes.size(), rgba.data(), rgba.size(), 4 * features.width);
    for (size_t i = 0; done && i < pixels; ++i)
      for (size_t c = 0; c < 3; ++c)
        picture.rgb[3 * i + c] = over_white(rgba[4 * i + c], rgba[4 * i + 3]);
  } else {
    done = ::WebPDecodeRGBInto(data, bytes.size(), picture.rgb.data(), picture.rgb.size(),
                               3 * features.width);
  }
  check<DataError>(done, "a damaged or truncated WebP image");
  return picture;
}

}  // namespace

const Format kWebp{"WebP", is_webp, webp_header, webp_pixels};

}  // namespace temper::image_formats
