// The images of a row: where they stand in its conversations, and in its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/rows/text_format.h"
#include "temper/image/image_span.h"

namespace temper::data {

struct RowImage {
  std::shared_ptr<const Image> image;
  int64_t tokens = 0;  // image tokens that it takes
  std::string text;    // what stands in its placeholder's place
};
using RowImages = std::vector<RowImage>;  // in the order of their parts

// Opens the images of a row that normalized_row() made and places them in its conversations, which
// are those of the `fields` that are lists: a part {"type": "image"} is the next image of the row's
// `images` (a list or one; or `image`), {"type": "image", "image": SOURCE} and {"type":
// "image_url", "image_url": {"url": SOURCE}} are their own. Where no message has such parts, each
// of format.images->options.tag in a text is an image, or, where there is none, all stand before
// the first text of the user. In rows of text and of ids images have their placeholders, or tokens,
// already. SOURCE: a path relative to format.directory, a data: URI, or
// {"bytes", "path"}.
//
// Throws DataError that begins with `where`: more or fewer images than parts, an image that cannot
// be read, other parts, images where format.images is null.
RowImages place_images(const TextFormat& format, Json& row, const std::vector<const char*>& fields,
                       const std::string& where);

// Those that the messages have, of place_images()'s.
RowImages images_in(const Json& messages, const RowImages& images);

// A text with its placeholders replaced by the images' texts; it is quoted() already. Throws
// DataError where it has more or fewer placeholders than there are images.
std::string with_images(const TextFormat& format, std::string text, const RowImages& images);

// Image tokens in a row's tokens: the k-th image has the next `tokens` of them.
class ImagePlaces {
 public:
  // `images` must outlive this.
  ImagePlaces(const TextFormat& format, const RowImages& images);

  bool is_image(int32_t token) const { return token == token_ && token_ >= 0; }
  // How many of the tokens are image tokens.
  int64_t count(std::span<const int32_t> tokens) const;
  // The spans of tokens that `before` image tokens precede. Throws DataError where there are more
  // image tokens than the images have.
  ImageSpans spans(std::span<const int32_t> tokens, int64_t before = 0) const;
  // Whether an image has some of its tokens among the first `count`, and not all.
  bool cuts_image(int64_t count) const;
  // Throws DataError unless these are all of the images' tokens.
  void check_all(std::span<const int32_t> tokens) const;

 private:
  int32_t token_;  // -1: none
  std::shared_ptr<const ImageProcessor> processor_;
  const RowImages& images_;
  std::vector<int64_t> first_;  // of each image, and of the end: image tokens before it
};

// The spans of a row's images in tokens that have all of their image tokens. Throws DataError that
// begins with `where`.
ImageSpans spans_of(const TextFormat& format, const RowImages& images,
                    std::span<const int32_t> tokens, const std::string& where);

}  // namespace temper::data
