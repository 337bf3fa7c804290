// Images among the chunks of a datum or a prompt: where they become tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "temper/data/images/image_format.h"
#include "temper/image/image_span.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {

// How the model reads images.
struct ChunkFormat {
  std::shared_ptr<const data::ImageFormat> images;  // null: it sees none
  std::shared_ptr<const Tokenizer> tokenizer;       // null: an image is its features' tokens alone
  int64_t most_pixels = INT64_MAX;                  // of the images of a datum, or of a prompt
};

// Puts the tokens of images among those of text, and says whose they are. An image chunk is the
// image tokens that the model's processor gives, and what stands between them (marks of tiles);
// what stands around an image the client sends as text. Reads the images' headers alone.
//
// Throws DataError that begins with `where`: a model that sees no images, what is no image, too
// many pixels, a number of tokens that is not the expected one, an image token in a text.
ImageSpans place_chunks(const ChunkFormat& format, const std::vector<WireImage>& images,
                        std::vector<int32_t>& tokens, const std::string& where);

}  // namespace temper::tinker
