#include "temper/nn/column_share.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"

namespace temper::nn {

ColumnRange part_of(int64_t count, int rank, int ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

at::Tensor take(const at::Tensor& x, const Columns& columns, int64_t dim) {
  std::vector<at::Tensor> parts;
  for (const ColumnRange& range : columns)
    parts.push_back(x.narrow(dim, range.begin, range.end - range.begin));
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts, dim);
}

ColumnShare::ColumnShare(std::shared_ptr<const TokenShare> share, std::vector<Columns> by_rank,
                         int64_t width)
    : share_(std::move(share)), by_rank_(std::move(by_rank)), width_(width) {
  for (const Columns& columns : by_rank_) {
    int64_t own = 0;
    for (const ColumnRange& range : columns) own += range.end - range.begin;
    widths_.push_back(own);
    widest_ = std::max(widest_, own);
  }
  check(std::ssize(by_rank_) == share_->ranks()->size(), "columns of ", by_rank_.size(),
        " ranks, expected ", share_->ranks()->size());
}

at::Tensor ColumnShare::to_columns(const at::Tensor& x) const {
  check(x.size(1) == width_, "a tensor of ", x.size(1), " columns is divided, expected ", width_);
  ops::Recording call({x});
  return call.output(columns_of(x), [this_ = *this, rows = x.size(0)](const ops::Gradients& d) {
    return ops::Tensors{this_.tokens_of(d[0], rows)};
  });
}

at::Tensor ColumnShare::to_tokens(const at::Tensor& y) const {
  ops::Recording call({y});
  return call.output(
      tokens_of(y, std::ssize(share_->tokens())),
      [this_ = *this](const ops::Gradients& d) { return ops::Tensors{this_.columns_of(d[0])}; });
}

at::Tensor ColumnShare::columns_of(const at::Tensor& x) const {
  const DividedRows& rows = share_->rows();
  const auto own = std::ssize(rows.own());
  at::Tensor given = at::zeros({std::ssize(by_rank_), rows.most(), widest_}, x.options());
  for (size_t r = 0; r < by_rank_.size(); ++r)
    given[static_cast<int64_t>(r)]
        .narrow(0, 0, own)
        .narrow(1, 0, widths_[r])
        .copy_(take(x.narrow(0, 0, own), by_rank_[r], 1));
  at::Tensor taken = at::empty_like(given);
  if (given.numel() > 0) share_->ranks()->exchange(given, taken);
  const int64_t width = widths_[static_cast<size_t>(share_->ranks()->rank())];
  return rows.of_parts(
      taken.narrow(2, 0, width).reshape({std::ssize(by_rank_) * rows.most(), width}));
}

at::Tensor ColumnShare::tokens_of(const at::Tensor& y, int64_t row_count) const {
  const DividedRows& rows = share_->rows();
  const auto ranks = std::ssize(by_rank_), own = std::ssize(rows.own());
  at::Tensor given = at::zeros({ranks, rows.most(), widest_}, y.options());
  given.narrow(2, 0, y.size(1)).copy_(rows.to_parts(y).view({ranks, rows.most(), y.size(1)}));
  at::Tensor taken = at::empty_like(given);
  if (given.numel() > 0) share_->ranks()->exchange(given, taken);
  at::Tensor x = at::zeros({row_count, width_}, y.options());
  for (size_t r = 0; r < by_rank_.size(); ++r) {
    const at::Tensor part = taken[static_cast<int64_t>(r)].narrow(0, 0, own);
    int64_t from = 0;
    for (const ColumnRange& range : by_rank_[r]) {
      const int64_t count = range.end - range.begin;
      x.narrow(0, 0, own).narrow(1, range.begin, count).copy_(part.narrow(1, from, count));
      from += count;
    }
  }
  return x;
}

}  // namespace temper::nn
