// Tensors that distillation strategies keep for their comparison.
#pragma once

#include "temper/distill/reading.h"
#include "temper/plan/run_shape.h"

namespace temper::plan {

// The tensors of a strategy that compares `tap` in `pairs` pairs of layers; `maps`: learned maps
// carry the student's to the teacher's.
ComparedShape compared_shape(distill::Tap tap, int64_t pairs, bool maps, const ModelShape& student,
                             const ModelShape& teacher);

}  // namespace temper::plan
