// Where the inputs of blocks stay between forward and backward pass, if not in memory. Blocks that
// are computed again in the backward pass (Context::recompute) keep nothing else: run_unit()
// (unit.h) has their inputs in the graph's node, and hands them over here instead.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace temper::nn {

class BlockInputs {
 public:
  // One tensor, as long as it is needed.
  class Kept {
   public:
    virtual ~Kept() = default;
    // The same bits, on the same device, without a graph; in a backward pass the last one that was
    // kept comes first. May be called again.
    virtual at::Tensor take() = 0;
  };
  virtual ~BlockInputs() = default;
  // Does not change x, which nobody writes any more. What it gives may not outlive this.
  virtual std::unique_ptr<Kept> keep(const at::Tensor& x) = 0;
};

}  // namespace temper::nn
