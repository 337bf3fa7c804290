// Where images stand in a row's tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "temper/image/processor.h"
#include "temper/image/source.h"

namespace temper {

// A run of image tokens, which stand for consecutive features of one image. An image of several
// tiles has a span for each run.
struct ImageSpan {
  int64_t begin = 0;  // its first token's place
  int64_t count = 0;  // tokens, at least one
  int64_t first = 0;  // the image's feature at `begin`
  std::shared_ptr<const Image> image;
  std::shared_ptr<const ImageProcessor> processor;  // of the model whose tokens these are

  bool operator==(const ImageSpan& other) const {
    return begin == other.begin && count == other.count && first == other.first &&
           image->digest() == other.image->digest();
  }
};
using ImageSpans = std::vector<ImageSpan>;  // ascending, apart

// Those of the tokens [begin, end), counted from there on.
inline ImageSpans spans_within(const ImageSpans& spans, int64_t begin, int64_t end) {
  ImageSpans out;
  for (ImageSpan span : spans) {
    const int64_t from = std::max(span.begin, begin), to = std::min(span.begin + span.count, end);
    if (from >= to) continue;
    span.first += from - span.begin;
    span.begin = from - begin;
    span.count = to - from;
    out.push_back(std::move(span));
  }
  return out;
}

// Appends them to those of the tokens before, of which there are `offset`.
inline void append_spans(ImageSpans& to, const ImageSpans& spans, int64_t offset) {
  for (ImageSpan span : spans) {
    span.begin += offset;
    to.push_back(std::move(span));
  }
}

// Images that begin in them, and their tokens.
inline int64_t count_images(const ImageSpans& spans) {
  return std::count_if(spans.begin(), spans.end(), [](const ImageSpan& s) { return s.first == 0; });
}
inline int64_t count_image_tokens(const ImageSpans& spans) {
  int64_t count = 0;
  for (const ImageSpan& span : spans) count += span.count;
  return count;
}

}  // namespace temper
