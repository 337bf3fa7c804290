// Sums and gathers over the ranks that compute the same rows, each with its part of the weights
// (tensor parallelism, Shoeybi et al., arXiv 1909.08053).
#pragma once

#include <ATen/core/Tensor.h>

namespace temper::ops {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sums over the ranks, in place, element by element in the order of the ranks. The same bits on
  // every rank.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  // whole [size * n] becomes every rank's `part` [n], by rank.
  virtual void all_gather(const at::Tensor& part, at::Tensor& whole) = 0;
};

}  // namespace temper::ops
