// Rows of a table by index, as a token embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace temper::ops {

// table [V, H] -> [N, H]: row ids[i], times scale (Gemma: sqrt(H)). Differentiable in the table; the gradient sums in the
// order of the ids.
at::Tensor embedding(const at::Tensor& table, const std::vector<int64_t>& ids, double scale = 1.0);

// Rows of x by index, differentiable in x.
at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows);

}  // namespace temper::ops
