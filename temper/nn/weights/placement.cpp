#include "temper/nn/weights/placement.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace temper::nn {

at::Tensor Placement::part(const at::Tensor& whole) const {
  const at::NoGradGuard no_grad;
  at::Tensor mine = whole;
  if (owner >= 0) {
    if (elsewhere()) mine = mine.narrow(0, 0, 0);
  } else if (tensor && joined.empty()) {
    const int64_t count = whole.size(dim) / tensor->size();
    mine = mine.narrow(dim, tensor->rank() * count, count);
  } else if (tensor) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& one : whole.split_with_sizes(joined, dim)) {
      const int64_t count = one.size(dim) / tensor->size();
      parts.push_back(one.narrow(dim, tensor->rank() * count, count));
    }
    mine = at::cat(parts, dim);
  }
  if (!fsdp) return mine.clone(at::MemoryFormat::Contiguous);
  const auto r = static_cast<size_t>(fsdp->rank());
  return mine.contiguous()
      .view({-1})
      .narrow(0, bounds[r], bounds[r + 1] - bounds[r])
      .clone(at::MemoryFormat::Contiguous);
}

void Placement::each_run(const Run& run) const {
  const auto r = static_cast<size_t>(fsdp ? fsdp->rank() : 0);
  if (owner >= 0) {
    int64_t size = elsewhere() ? 0 : 1;
    for (const int64_t extent : whole_shape) size *= extent;
    const int64_t begin = fsdp ? bounds[r] : 0, end = fsdp ? bounds[r + 1] : size;
    if (begin < end) run(0, begin, end - begin);
    return;
  }
  int64_t rows = 1, whole_row = 1;  // of the dimension and those after it
  for (size_t d = 0; d < whole_shape.size(); ++d)
    (tensor && d < static_cast<size_t>(dim) ? rows : whole_row) *= whole_shape[d];
  const int64_t row = tensor ? whole_row / tensor->size() : whole_row;
  // Where the part of each joined tensor ends in a row of this rank's part, and how far ahead the
  // same element is in the whole row.
  std::vector<std::pair<int64_t, int64_t>> pieces;
  const int64_t step = tensor ? whole_row / whole_shape[static_cast<size_t>(dim)] : 1;
  const std::vector<int64_t> one{whole_row / step};
  int64_t whole_begin = 0, mine_begin = 0;
  for (const int64_t extent : joined.empty() ? one : joined) {
    const int64_t whole_count = extent * step, count = whole_count / (tensor ? tensor->size() : 1);
    const int64_t from = whole_begin + (tensor ? tensor->rank() * count : 0);
    pieces.emplace_back(mine_begin + count, from - mine_begin);
    whole_begin += whole_count;
    mine_begin += count;
  }
  const int64_t begin = fsdp ? bounds[r] : 0, end = fsdp ? bounds[r + 1] : rows * row;
  for (int64_t i = begin; i < end;) {
    const int64_t row_begin = i / row * row;
    const auto piece = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const auto& p) { return i - row_begin < p.first; });
    const int64_t count = std::min(end, row_begin + piece->first) - i;
    run(i - begin, i / row * whole_row + piece->second + i % row, count);
    i += count;
  }
}

at::Tensor Placement::of_fsdp(const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  at::Tensor mine = part.contiguous();
  if (!fsdp) return mine;
  std::vector<int64_t> shape = whole_shape;
  if (owner < 0 && tensor) shape[static_cast<size_t>(dim)] /= tensor->size();
  if (elsewhere()) shape[0] = 0;
  int64_t longest = 0;
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    longest = std::max(longest, bounds[r + 1] - bounds[r]);
  if (longest == 0) return mine.view(shape);
  at::Tensor padded = at::zeros({longest}, part.options()),
             all = at::empty({fsdp->size() * longest}, part.options());
  padded.narrow(0, 0, part.numel()).copy_(part.view({-1}));
  fsdp->all_gather(padded, all);
  mine = at::empty({bounds.back()}, part.options());
  for (size_t r = 0; r + 1 < bounds.size(); ++r)
    mine.narrow(0, bounds[r], bounds[r + 1] - bounds[r])
        .copy_(all.narrow(0, static_cast<int64_t>(r) * longest, bounds[r + 1] - bounds[r]));
  return mine.view(shape);
}

at::Tensor Placement::from_owner(const at::Tensor& held, const std::vector<int64_t>& shape) const {
  const at::NoGradGuard no_grad;
  at::Tensor whole = elsewhere() ? at::empty(shape, held.options()) : held.contiguous();
  tensor->broadcast(whole, owner);
  return whole;
}

at::Tensor Placement::whole(const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  const at::Tensor mine = of_fsdp(part);
  if (!tensor) return mine;
  if (owner >= 0) return from_owner(mine, whole_shape);
  const auto dim_index = static_cast<size_t>(dim);
  std::vector<int64_t> shape = whole_shape;
  shape[dim_index] /= tensor->size();
  at::Tensor all = at::empty({tensor->size() * mine.numel()}, part.options());
  tensor->all_gather(mine.view({-1}), all);
  std::vector<int64_t> mine_of_each = joined.empty() ? std::vector{whole_shape[dim_index]} : joined;
  for (int64_t& extent : mine_of_each) extent /= tensor->size();
  std::vector<std::vector<at::Tensor>> pieces;  // by rank
  for (const at::Tensor& one : all.chunk(tensor->size()))
    pieces.push_back(one.view(shape).split_with_sizes(mine_of_each, dim));
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < mine_of_each.size(); ++i)
    for (const auto& of_rank : pieces) parts.push_back(of_rank[i]);
  return at::cat(parts, dim);
}

}  // namespace temper::nn
