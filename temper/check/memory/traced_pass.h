// The memory of a forward and a backward pass, found by running the models themselves on the device
// `meta` (ops::SizesOf), whose tensors have sizes but no memory. So nothing here needs to know what
// a layer keeps.
#pragma once

#include "temper/check/memory/counted_tensors.h"
#include "temper/check/memory/run_shape.h"

namespace temper::checks {

// The peak of such a pass on a rank. `gradients`: bytes of all gradients of this rank, the policy's
// and those of what is differentiated with it; they are in memory from the start unless the pass is
// its step's first. 0 for a model without a config.json. Throws ConfigError where ranks cannot
// divide a model.
PassPeak traced_pass(const RunShape& run, const PassShape& pass, const Ranks& ranks,
                     int64_t gradients);

}  // namespace temper::checks
