// Context parallelism of layers that go through a row token by token (short convolutions, delta
// nets): a rank that divides the tokens would wait for the one before. But their heads, or
// channels, know nothing of each other; so each rank computes some of them for all tokens. Tokens
// go to heads and back by two exchanges. Nothing is summed: outputs, and the gradients of inputs
// and of the heads' parameters, have the bits of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "temper/nn/token_share.h"

namespace temper::nn {

struct ColumnRange {
  int64_t begin, end;
};
// Columns of a tensor, those of a rank in the order of its ranges.
using Columns = std::vector<ColumnRange>;

// The `rank`-th of `ranks` parts of `count` heads or channels: as many as the others', or one more.
ColumnRange part_of(int64_t count, int rank, int ranks);
// x's columns, or a weight's rows (dim 0), in their order. Differentiable.
at::Tensor take(const at::Tensor& x, const Columns& columns, int64_t dim);

class ColumnShare {
 public:
  // By rank the columns that are its own, disjoint, of tensors of `width` columns. All ranks of the
  // share make one, and the same calls.
  ColumnShare(std::shared_ptr<const TokenShare> share, std::vector<Columns> by_rank, int64_t width);

  // x [n, width] of the own tokens -> the own columns of all tokens [N, w], contiguous.
  // Differentiable.
  at::Tensor to_columns(const at::Tensor& x) const;
  // The other way: y [N, w] -> [n, width]. Zeros for a token that stands in for none of its own.
  at::Tensor to_tokens(const at::Tensor& y) const;

 private:
  at::Tensor columns_of(const at::Tensor& x) const;
  at::Tensor tokens_of(const at::Tensor& y, int64_t rows) const;

  std::shared_ptr<const TokenShare> share_;
  std::vector<Columns> by_rank_;
  int64_t width_, widest_ = 0;   // widest_: columns of a rank
  std::vector<int64_t> widths_;  // by rank
};

}  // namespace temper::nn
