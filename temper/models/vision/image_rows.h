// A row's images (image/image_span.h) as the external rows of its tokens. Their features are made
// where a model reads them, by that model's tower (Model::vision).
#pragma once

#include <memory>
#include <vector>

#include "temper/image/image_span.h"
#include "temper/image/processor.h"
#include "temper/models/vision/tower.h"
#include "temper/ops/forest.h"

namespace temper::models {

class ImageRows {
 public:
  ImageRows(std::shared_ptr<const ImageProcessor> processor, const VisionFamily& family)
      : processor_(std::move(processor)), family_(family) {}

  // Reads no pixels: these are decoded when features are computed, which throws DataError where the
  // image's file has changed. Throws DataError for a shape that the processor refuses.
  std::vector<ExternalRows> of(const ImageSpans& spans) const;

 private:
  std::shared_ptr<const ImageProcessor> processor_;
  const VisionFamily& family_;
};

}  // namespace temper::models
