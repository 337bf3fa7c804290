// Settings that the differentiable functions (ops/layers, ops/logits) and the kernels share. Plain
// C++ without LibTorch.
#pragma once

#include <cstdint>

namespace temper::ops {

// The function applied to the gate in activation(gate) * up. kSigmoid and kIdentity are used
// outside of MLPs, as in gated attention: sigmoid(gate) * up, gate * up.
enum class Activation { kSilu, kGeluTanh, kGelu, kSigmoid, kIdentity };

enum class DivergenceKind { kForwardKl, kReverseKl, kJsd };

enum class RouterScore {
  kSoftmax,  // softmax of all experts' logits (Shazeer et al., arXiv 1701.06538)
  kSigmoid,  // sigmoid of each logit (DeepSeek-V3, arXiv 2412.19437, equation 15)
};

struct RouterSpec {
  int64_t experts = 0, chosen = 0;  // chosen: experts per token (top-k)
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = false;  // divide a token's expert weights by their sum
  double scale = 1;        // factor of the expert weights
  // The experts form this many groups of equal size. A token's experts come from `chosen_groups` of
  // them: those whose two largest scores have the largest sum (DeepSeek-V3, section 2.1.2).
  int64_t groups = 1, chosen_groups = 1;
};

// One step of AdamW with decoupled weight decay. The first line holds keys of the section
// `optimizer`.
struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double correction1, correction2;  // the bias corrections 1 - beta^t
  double grad_scale;                // the gradient is multiplied by it first: gradient clipping
};

}  // namespace temper::ops
