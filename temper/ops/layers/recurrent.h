// Layers that carry a state from token to token instead of keys and values: short convolutions and
// the gated delta rule. The state of a token is a function of its path in the forest: a segment
// begins from the state where its parent ends, so that prompts are shared as with attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "temper/ops/forest.h"

namespace temper::ops {

// What a sampled sequence carries of one operation from one forward pass to the next.
struct CarriedState {
  at::Tensor from;  // before the root's first token; undefined: zeros
  // Written after these tokens of the forest, ascending; may be `from` itself.
  std::vector<std::pair<int64_t, at::Tensor>> to;
};
// One for each root of the forest, float32; none: every root begins from zeros and nothing is kept.
// Nothing is differentiable where there are any.
using CarriedStates = std::vector<CarriedState>;

// Most tokens that a short convolution may read.
int64_t most_convolution_taps();

struct ConvolutionWeights {
  at::Tensor weight;  // [C, 1, width], as torch.nn.Conv1d with a group for each channel has it
  at::Tensor bias;    // [C], or undefined
};
// A causal convolution of every channel of x [N, C] over the last `width` tokens of each token's
// path; with `silu`, that of the result. A state is [width - 1, C]: the inputs before, the oldest
// first. Differentiable in x and the weights.
at::Tensor short_convolution(const ConvolutionWeights& weights, bool silu,
                             const std::shared_ptr<const Forest>& forest, const at::Tensor& x,
                             const CarriedStates& carried = {});

struct DeltaRuleSpec {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t qkv_width() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};
struct DeltaRuleInputs {
  at::Tensor qkv;             // [N, qkv_width()]: queries, keys, values
  at::Tensor a, b;            // [N, value_heads]: of the decay and the rate
  at::Tensor a_log, dt_bias;  // [value_heads]
};
// The gated delta rule (Yang et al., arXiv 2412.06464, equation 10;
// torch_recurrent_gated_delta_rule of transformers), with queries and keys divided by their norms
// (eps 1e-6) and queries by sqrt(key_dim), decay = exp(-exp(a_log) softplus(a + dt_bias)), rate =
// sigmoid(b):
//   S = decay S;  S = S + k (rate (v - Sᵀ k))ᵀ;  o = Sᵀ q
// -> [N, value_heads * value_dim]. A state is S [value_heads, key_dim, value_dim]. Differentiable
// in all inputs.
at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const std::shared_ptr<const Forest>& forest,
                            const DeltaRuleInputs& inputs, const CarriedStates& carried = {});

}  // namespace temper::ops
