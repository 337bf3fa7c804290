#include "temper/nn/placement.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace temper::nn {

at::Tensor Placement::part(const at::Tensor& whole) const {
  const at::NoGradGuard no_grad;
  at::Tensor mine = whole;
  if (tensor) {
    const int64_t count = whole.size(dim) / tensor->size();
    mine = mine.narrow(dim, tensor->rank() * count, count);
  }
  if (!fsdp) return mine.clone(at::MemoryFormat::Contiguous);
  const auto r = static_cast<size_t>(fsdp->rank());
  return mine.contiguous()
      .view({-1})
      .narrow(0, bounds[r], bounds[r + 1] - bounds[r])
      .clone(at::MemoryFormat::Contiguous);
}

void Placement::each_run(const Run& run) const {
  int64_t rows = 1, whole_row = 1;  // of the dimension and those after it
  for (size_t d = 0; d < whole_shape.size(); ++d)
    (tensor && d < static_cast<size_t>(dim) ? rows : whole_row) *= whole_shape[d];
  const int64_t row = tensor ? whole_row / tensor->size() : whole_row;
  const int64_t column = tensor ? tensor->rank() * row : 0;
  const auto r = static_cast<size_t>(fsdp ? fsdp->rank() : 0);
  const int64_t begin = fsdp ? bounds[r] : 0, end = fsdp ? bounds[r + 1] : rows * row;
  for (int64_t i = begin; i < end;) {
    const int64_t count = std::min(end, (i / row + 1) * row) - i;
    run(i - begin, i / row * whole_row + column + i % row, count);
    i += count;
  }
}

at::Tensor Placement::whole(const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> shape = whole_shape;
  if (tensor) shape[static_cast<size_t>(dim)] /= tensor->size();
  at::Tensor mine = part.contiguous();
  if (fsdp) {
    int64_t longest = 0;
    for (size_t r = 0; r + 1 < bounds.size(); ++r)
      longest = std::max(longest, bounds[r + 1] - bounds[r]);
    at::Tensor padded = at::zeros({longest}, part.options()),
               all = at::empty({fsdp->size() * longest}, part.options());
    padded.narrow(0, 0, part.numel()).copy_(part.view({-1}));
    fsdp->all_gather(padded, all);
    mine = at::empty({bounds.back()}, part.options());
    for (size_t r = 0; r + 1 < bounds.size(); ++r)
      mine.narrow(0, bounds[r], bounds[r + 1] - bounds[r])
          .copy_(all.narrow(0, static_cast<int64_t>(r) * longest, bounds[r + 1] - bounds[r]));
    mine = mine.view(shape);
  }
  if (!tensor) return mine;
  at::Tensor all = at::empty({tensor->size() * mine.numel()}, part.options());
  tensor->all_gather(mine.view({-1}), all);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& one : all.chunk(tensor->size())) parts.push_back(one.view(shape));
  return at::cat(parts, dim);
}

}  // namespace temper::nn
