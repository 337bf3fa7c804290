// Settings of operations that the differentiable functions and the kernels share. Plain C++.
#pragma once

#include <cstdint>

namespace temper::ops {

// Of the gate of a product with another tensor. kSigmoid and kIdentity gate what is no MLP:
// sigmoid(gate) * up and gate * up.
enum class Activation { kSilu, kGeluTanh, kGelu, kSigmoid, kIdentity };

enum class DivergenceKind { kForwardKl, kReverseKl, kJsd };

enum class RouterScore {
  kSoftmax,  // softmax of all experts' logits (Shazeer et al., arXiv 1701.06538)
  kSigmoid,  // sigmoid of each logit (DeepSeek-V3, arXiv 2412.19437, equation 15)
};

struct RouterSpec {
  int64_t experts = 0, chosen = 0;  // chosen: experts of a token
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = false;  // the weights of a token are divided by their sum
  double scale = 1;        // factor of the weights
  // The experts are that many groups of equal size, of which a token goes to `chosen_groups`: those
  // whose two largest scores have the largest sum (section 2.1.2 of the same paper).
  int64_t groups = 1, chosen_groups = 1;
};

// One step of AdamW with decoupled weight decay: the keys of the section `optimizer`, and
struct AdamWStep {
  double learning_rate, beta1, beta2, eps, weight_decay;
  double correction1, correction2;  // the bias corrections 1 - beta^t
  double grad_scale;                // the gradient is multiplied by it first: gradient clipping
};

}  // namespace temper::ops
