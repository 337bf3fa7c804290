// A row's images as the external rows of its tokens.
#pragma once

#include <span>
#include <vector>

#include "temper/image/image_span.h"
#include "temper/ops/forest.h"

namespace temper::models {

// Reads no pixels: a model that reads the rows (Model::vision) decodes them when it computes their
// features, and throws DataError then where the image's file has changed. Throws DataError for a
// shape that the processor refuses.
std::vector<ExternalRows> external_rows(std::span<const ImageSpan> spans);

// The other way, for messages to other processes. Throws RunError for rows that are no image.
ImageSpans image_spans(std::span<const ExternalRows> rows);

}  // namespace temper::models
