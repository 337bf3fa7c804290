// Dropout with counter-based random numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace temper::ops {

// x [N, H] with each element zeroed with probability p, the others divided by 1 - p. The coin of
// element (n, i) depends on (seed, step, module, row_key[n], i) alone. Differentiable.
at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed, uint64_t step, uint64_t module,
                   const std::vector<uint64_t>& row_key);

}  // namespace temper::ops
