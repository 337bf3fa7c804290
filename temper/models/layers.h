// A body seen layer by layer, for what reads more of a model than its result. nn::Context::observe
// sees what goes into each block, and what the last one gives, before the final norm.
#pragma once

#include "temper/nn/blocks.h"

namespace temper::models {

class Layers {
 public:
  virtual ~Layers() = default;
  // What attention of this layer makes of the block's input x [N, hidden_size]; differentiable.
  virtual nn::Attention::Heads attention_heads(int64_t layer, const at::Tensor& x,
                                               const nn::Context& context) = 0;
};

}  // namespace temper::models
