#include "temper/train/task.h"

#include "temper/image/image_span.h"

namespace temper::train {

void StepPlan::count_images(std::span<const PackUnit> units) {
  for (const PackUnit& unit : units) {
    images += unit.num_images();
    image_tokens += unit.num_image_tokens();
    for (const PackUnit::Segment& segment : unit.segments)
      for (const ImageSpan& span : segment.images)
        if (!span.image->path().empty()) image_files[span.image->path()] = span.image->digest();
  }
}

}  // namespace temper::train
