// The memory of a forward and a backward pass, found by running the models themselves on the device
// `meta` (ops::SizesOf): their tensors have sizes and no memory. A layer says what it keeps and
// needs by what it does, so that nothing here knows of any layer.
#pragma once

#include "temper/check/memory/counted_tensors.h"
#include "temper/check/memory/run_shape.h"

namespace temper::checks {

// The peak of such a pass on a rank. `gradients`: bytes that the gradients of this rank take once
// all are there, of the policy's and of all that is differentiated with it. A pass that is not its
// step's first finds them. A pass of a model without a config.json takes nothing. Throws
// ConfigError where ranks do not divide a model.
PassPeak traced_pass(const RunShape& run, const PassShape& pass, const Ranks& ranks,
                     int64_t gradients);

}  // namespace temper::checks
