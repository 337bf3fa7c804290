// Pixels as a vision tower reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/image/processor.h"

namespace temper {

struct ProcessedImage {
  ImageLayout layout;
  // float32 [layout.patches(), patches.width()]: the patches of all tiles, one tile after the
  // other.
  at::Tensor pixels;
};

// Resizes (ATen's antialiased filters on bytes, as torchvision does), cuts, normalizes in float32
// and in transformers' order of operations. Throws DataError as ImageProcessor::layout() does.
ProcessedImage process_image(const ImageProcessor& processor, const Picture& picture);

}  // namespace temper
