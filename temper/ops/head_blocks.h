// Logits of the vocabulary in tiles, from which every loss computes, so that no [N, vocabulary]
// tensor exists.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {

inline int64_t blocks_of(int64_t columns) { return (columns + kLogitsBlock - 1) / kLogitsBlock; }

// Logits of one tile [rows of hidden, rows of weight]: scale, cap and temperature of hidden
// weightᵀ and what the tile's part of an adapter adds to it.
inline at::Tensor tile_logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                              const HeadAdapter& adapter = {}) {
  at::Tensor x = at::empty({hidden.size(0), weight.out()}, hidden.options());
  multiply(hidden, weight, x);
  if (adapter.low.defined()) {
    at::Tensor up = at::empty_like(x);
    multiply(adapter.low, adapter.up, up);
    x = backend_of(x).add_scaled(x, up, adapter.scale);
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

}  // namespace temper::ops
