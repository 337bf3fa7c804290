// Any text as a data: URI, and as base64 alone: an image's bytes, which a URI of them gives again,
// or a DataError. Seeds: tests/fuzz/seeds/uri.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "temper/base/error.h"
#include "temper/image/source.h"

namespace {
using namespace temper;

constexpr ImageLimits kLimits{.max_bytes = 1 << 16, .max_pixels = 1 << 16};

void read(const ImageSource& source) {
  try {
    const std::string bytes = read_image_bytes(source, "", kLimits);
    if (bytes.size() > kLimits.max_bytes) std::abort();
    if (read_image_bytes({.text = data_uri(bytes)}, "", kLimits) != bytes) std::abort();
    const auto image = Image::open(source, "", kLimits);
    if (!image->path().empty() || image->bytes() != bytes) std::abort();
    if (Image::open({.text = image->source()}, "")->digest() != image->digest()) std::abort();
  } catch (const DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (is_data_uri(text)) read({.text = text});
  read({.text = "data:image/png;base64," + text});
  read({.text = text, .is_base64 = true});
  return 0;
}
