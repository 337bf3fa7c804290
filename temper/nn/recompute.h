// Recomputation of activations (Chen et al., arXiv 1604.06174): a block keeps only its input, and
// the backward pass runs it again. The same arithmetic runs twice, so the gradients are those of
// the plain pass, bit for bit.
#pragma once

#include <functional>

#include "temper/nn/context.h"
#include "temper/nn/module.h"

namespace temper::nn {

using BlockFunction = std::function<at::Tensor(const at::Tensor& x)>;

// forward(x), recomputed in the backward pass where the context asks for it. `block` owns every
// parameter that forward reads. What `forward` refers to must outlive the backward pass.
at::Tensor run_block(Module& block, const at::Tensor& x, const Context& context,
                     BlockFunction forward);

}  // namespace temper::nn
