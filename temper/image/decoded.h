// Images that are known to be whole.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

#include "temper/image/image_span.h"

namespace temper {

// A file's header tells the image's size, and nothing of damage behind it. From any thread.
class DecodedImages {
 public:
  // Throws DataError as Image::decode(), which is done unless an image of these bytes was decoded
  // before; its message begins with `where` and the image's number.
  void check(const ImageSpans& images, const std::string& where);

 private:
  void check(const Image& image);

  std::mutex mutex_;
  std::unordered_set<std::string> digests_;
};

}  // namespace temper
