// Logits of the vocabulary in tiles, from which every loss computes, so that no [N, vocabulary]
// tensor exists.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/backend.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {

inline int64_t blocks_of(int64_t columns) { return (columns + kLogitsBlock - 1) / kLogitsBlock; }

// Logits of one tile [rows of hidden, rows of weight]: scale, cap and temperature of hidden
// weightᵀ and what the tile's parts of adapters add to it.
inline at::Tensor tile_logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                              const std::vector<HeadAdapter>& adapters = {}) {
  at::Tensor x = new_tensor({hidden.size(0), weight.out()}, hidden);
  multiply(hidden, weight, x);
  for (const HeadAdapter& adapter : adapters) {
    const int64_t rows = adapter.low.size(0);
    at::Tensor up = at::empty({rows, x.size(1)}, x.options());
    multiply(adapter.low, adapter.up, up);
    at::Tensor part = x.narrow(0, adapter.first_row, rows);
    const at::Tensor sum = backend_of(x).add_scaled(part, up, adapter.scale);
    if (rows == x.size(0))
      x = sum;
    else
      part.copy_(sum);
  }
  backend_of(x).finish_logits(spec, x);
  return x;
}

// One block of the vocabulary: the weight's rows from `first` on, packed if there are `rows` to
// multiply.
inline Weight block_of(const Weight& weight, int64_t first, int64_t rows) {
  const int64_t columns = backend_of(weight.tensor()).head_tile().columns;
  Weight part = weight.part(first, std::min(columns, weight.out() - first));
  if (rows > 0 && !part.panels.defined()) part.panels = pack(part);
  return part;
}

// Calls body(first column, that block of the weight) for each block of the vocabulary.
template <class Body>
void each_block(const Weight& weight, int64_t rows, Body body) {
  const int64_t columns = backend_of(weight.tensor()).head_tile().columns;
  for (int64_t first = 0; first < weight.out(); first += columns)
    body(first, block_of(weight, first, rows));
}

// Calls body(first row, number of rows) for each tile's rows of the batch.
template <class Body>
void each_rows(const Backend& backend, int64_t m, Body body) {
  const int64_t at_once = backend.head_tile().rows;
  for (int64_t row = 0; row < m; row += at_once) body(row, std::min(at_once, m - row));
}

// The parts of rows [row, row + rows) and of the blocks of columns [first, first + columns).
inline at::Tensor parts_of(const at::Tensor& parts, int64_t row, int64_t rows, int64_t first,
                           int64_t columns) {
  return parts.narrow(0, row, rows).narrow(1, first / kLogitsBlock, blocks_of(columns));
}

// x [rows, ...] of each rank, side by side along the second dimension.
inline at::Tensor beside(Ranks& ranks, const at::Tensor& x) {
  at::Tensor all = at::empty({ranks.size() * x.numel()}, x.options());
  if (x.numel() > 0) ranks.all_gather(x.reshape({-1}), all);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), ranks.size());
  return all.view(shape).transpose(0, 1).flatten(1, 2).contiguous();
}

// The logit of a token that is not kept: exp of it less any logit is 0, and 0 times it is 0.
inline constexpr float kRuledOut = -1e30F;

// Throws RunError for adapters that do not fit the head and these rows.
void check_adapters(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                    const std::vector<HeadAdapter>& adapters);

}  // namespace temper::ops
