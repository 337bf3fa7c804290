#include "temper/image/decoded.h"

#include "temper/base/error.h"

namespace temper {

void DecodedImages::check(const ImageSpans& images, const std::string& where) {
  int64_t number = 0;
  for (const ImageSpan& span : images) {
    if (span.first > 0) continue;
    ++number;
    try {
      check(*span.image);
    } catch (const DataError& e) {
      const std::string why = e.what();
      throw DataError(why.starts_with(where) ? why : str(where, ": image ", number, ": ", why));
    }
  }
}

void DecodedImages::check(const Image& image) {
  constexpr size_t kMostKnown = 1 << 16;
  {
    const std::lock_guard lock(mutex_);
    if (digests_.contains(image.digest())) return;
  }
  image.decode();
  const std::lock_guard lock(mutex_);
  if (digests_.size() >= kMostKnown) digests_.clear();
  digests_.insert(image.digest());
}

}  // namespace temper
