// Rows of a table by index, as a token embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace temper::ops {

// table [V, H] -> [N, H]: row ids[i], times scale (Gemma: sqrt(H)). Differentiable in the table;
// the gradient sums in the order of the ids. A table in bfloat16 gives float32 and has no gradient;
// with `bfloat16` the rows of a float32 table are rounded to it before they are scaled.
at::Tensor embedding(const at::Tensor& table, const std::vector<int64_t>& ids, double scale = 1.0,
                     bool bfloat16 = false);

// Rows of x by index, differentiable in x.
at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows);

}  // namespace temper::ops
