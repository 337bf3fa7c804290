// Tensors that distillation strategies keep for their comparison.
#pragma once

#include "temper/check/memory/run_shape.h"
#include "temper/distill/reading.h"

namespace temper::checks {

// The tensors of a strategy that compares `tap` in `pairs` pairs of layers; `maps`: learned maps
// carry the student's to the teacher's.
ComparedShape compared_shape(distill::Tap tap, int64_t pairs, bool maps, const ModelShape& student,
                             const ModelShape& teacher);

}  // namespace temper::checks
