// Images of the rows that working verbs read and write.
#pragma once

#include <memory>
#include <string>

#include "temper/cli/parts/output.h"
#include "temper/data/images/image_format.h"
#include "temper/image/image_span.h"

namespace temper::cli {

// How images are read for the model of a directory; null: it sees none. Throws as
// data::find_image_format().
std::shared_ptr<const data::ImageFormat> image_format(const std::string& model,
                                                      const Tokenizer* tokenizer,
                                                      const data::ImageOptions& options = {});

// The row's `images`, where it has any, for a row of the file `path`: paths relative to it, and
// data: URIs of images that have none.
void write_images(const ImageSpans& images, const std::string& path, OutputRow& row);

}  // namespace temper::cli
