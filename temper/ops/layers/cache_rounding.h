// Rounding of what a cache holds, where a pass reads it as something else than keys and values.
#pragma once

#include <ATen/core/Tensor.h>

#include "temper/ops/formats.h"

namespace temper::ops {

// x as a cache of this type holds it (AttentionSpec::cache_dtype): float16 saturates; float64 is
// left as it is. Gradients pass as if it were not rounded.
at::Tensor round_to_cache(CacheDtype dtype, const at::Tensor& x);

}  // namespace temper::ops
