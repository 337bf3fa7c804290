// Sums and gathers over the ranks that compute the same rows, each with its part of the weights
// (tensor parallelism, Shoeybi et al., arXiv 1909.08053) or some of the experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

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
  // One rank after the other, by rank, finds the tensor as the one before has left it and runs
  // add(), which changes it in place. As the last leaves it, it is then every rank's.
  virtual void in_turn(at::Tensor& tensor, const std::function<void()>& add) = 0;
};

}  // namespace temper::ops
