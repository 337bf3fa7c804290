// What distillation strategies keep of what they compare.
#pragma once

#include "temper/distill/reading.h"
#include "temper/plan/run_shape.h"

namespace temper::plan {

// Of a strategy that reads `tap` of so many pairs of layers; `maps`: learned maps carry the
// student's to the teacher's.
ComparedShape compared_shape(distill::Tap tap, int64_t pairs, bool maps, const ModelShape& student,
                             const ModelShape& teacher);

}  // namespace temper::plan
