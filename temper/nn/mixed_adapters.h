// Passes in which sequences of several adapters go through the model together: what the frozen base
// computes is computed once for all rows, in the backward pass too, and each adapter adds to its
// own (as S-LoRA, Sheng et al., arXiv 2311.03285, does for sampling). A row's numbers and its
// gradient are those of a pass under its adapter alone, and so are an adapter's gradients where its
// rows stand together, in the order that they have there: each is the sum over these rows alone.
#pragma once

#include <vector>

#include "temper/nn/linear.h"

namespace temper::nn {

// Adds `count` tokens under an adapter behind those that `rows` has.
void append_adapter_rows(std::vector<AdapterRows>& rows, int adapter, int64_t count);

// The ranges of the selected tokens (ascending) among each other.
std::vector<AdapterRows> selected_adapter_rows(const std::vector<AdapterRows>& rows,
                                               const std::vector<int64_t>& selected);

// Whether passes of the model may have several adapters: not where an adapted layer is divided
// among ranks, nor where experts are adapted, whose rows are not in the order of tokens.
bool mixes_adapters(Module& model);

// project() of x [N, in] where context.adapter_rows covers the N rows. Without dropout.
std::vector<at::Tensor> project_mixed(const ops::LinearInput& x, const std::vector<Linear*>& layers,
                                      const Context& context);

}  // namespace temper::nn
