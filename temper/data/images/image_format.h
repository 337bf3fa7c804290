// How the images of rows are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/image/image.h"
#include "temper/image/processor.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::data {

struct ImageOptions {
  ImageLimits limits;
  PixelBounds bounds;
  // What stands for an image in the text of messages, as <image> in verl's rows; empty: nothing.
  // Read only where a row has images and no message has parts that are images.
  std::string tag = "<image>";
};

struct ImageFormat {
  std::shared_ptr<const ImageProcessor> processor;
  int32_t token = -1;  // the id of processor->tokens().image, one for each feature
  ImageOptions options;
};

// Of a model directory that says how images are processed; null where it does not, or where its
// images are of a processor that is not known. `tokenizer` may be null where config.json names the
// token. Throws ConfigError and DataError as ImageProcessor::open() does, and ConfigError where the
// image token is none of the tokenizer.
std::shared_ptr<const ImageFormat> find_image_format(const std::string& directory,
                                                     const Tokenizer* tokenizer,
                                                     const ImageOptions& options = {});

}  // namespace temper::data
