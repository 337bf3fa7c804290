// Rows of a table by index, as a token embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "temper/ops/weight.h"

namespace temper::ops {

// An id that has no row of the table, but zeros.
constexpr int64_t kNoRow = -1;

// table [V, H] -> [N, H]: row ids[i], times scale (Gemma: sqrt(H)). Differentiable in the table;
// the gradient, or that of the table's trained rows, sums in the order of the ids. Rows in
// bfloat16, or rounded to it, are so before they are scaled. A quantized table's rows are those of
// read().
at::Tensor embedding(const Weight& table, const std::vector<int64_t>& ids, double scale = 1.0);

// Rows of x by index, differentiable in x.
at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows);

// The reverse: row i of x becomes row rows[i] of a tensor of `count` rows; rows that nothing is put
// in are zero. No row is named twice. Differentiable in x.
at::Tensor place_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t count);

}  // namespace temper::ops
