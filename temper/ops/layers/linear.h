// Linear layers: y = x Wᵀ + b, every element one chain of fused multiply-adds over k ascending
// (temper/ops/native/kernels/gemm.h). Several layers that read the same input are one call, and
// what they read may be a cheap function of stored tensors that the backward pass computes again
// instead of keeping it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "temper/ops/ranks.h"
#include "temper/ops/specs.h"
#include "temper/ops/weight.h"

namespace temper::ops {

// The input of linear layers, [N, in]. float32, or float64 for gradient checks.
struct LinearInput {
  enum class Kind { kPlain, kRmsNorm, kLayerNorm, kGated };
  Kind kind = Kind::kPlain;
  at::Tensor x;                               // plain and norm: [N, in]; gated: the gate, [N, in]
  at::Tensor other;                           // norm: the weight [in]; gated: up [N, in]
  double eps = 0;                             // norm
  bool add_unit_offset = false;               // norm: multiply by 1 + weight (Gemma)
  Activation activation = Activation::kSilu;  // gated: act(gate) * up
  // Set where each of several ranks has a part of the layers' outputs: the input's gradient is then
  // the sum over the ranks. Null: nothing is summed.
  std::shared_ptr<Ranks> ranks = nullptr;

  static LinearInput plain(at::Tensor x);
  static LinearInput rms_norm(at::Tensor x, at::Tensor weight, double eps,
                              bool add_unit_offset = false);
  // x less its row's mean, then rms_norm: a layer norm without bias (Ba et al., arXiv 1607.06450).
  static LinearInput layer_norm(at::Tensor x, at::Tensor weight, double eps);
  static LinearInput gated(at::Tensor gate, at::Tensor up, Activation activation);
};

// Rows [begin, end) of a batch.
struct RowRange {
  int64_t begin = 0, end = -1;  // -1: of all its rows
  bool is_all(int64_t rows) const { return end < 0 || (begin == 0 && end == rows); }
  at::Tensor of(const at::Tensor& x) const {
    return is_all(x.size(0)) ? x : x.narrow(0, begin, end - begin);
  }
  void check_of(int64_t rows) const;  // throws RunError where they are none of so many
  bool operator==(const RowRange&) const = default;
};

struct LinearOperand {
  Weight weight;       // [out, in]
  at::Tensor bias;     // [out] or undefined
  RowRange rows = {};  // of linear()'s input, that alone go through it
};

// One output [rows, out_i] for each operand. Differentiable in the input's tensors, weights and
// biases; tensors that do not require a gradient cost no time or memory in the backward pass. What
// an operand gives and its gradients are those of its rows alone: a weight's gradient sums over
// them in their order, and a row's adds its operands' parts in the order of the operands.
std::vector<at::Tensor> linear(const LinearInput& input,
                               const std::vector<LinearOperand>& operands);

// The input itself, differentiable: x, the normalized x, or act(gate) * up.
at::Tensor materialize(const LinearInput& input);

// The values that products see of a weight, float32 (or float64) [out, in]: a copy where it is kept
// in another format. Differentiable; rounding passes gradients through unchanged.
at::Tensor weight_values(const Weight& w);

// The sum over ranks of each one's x; its gradient is the same on all.
at::Tensor sum_over(const std::shared_ptr<Ranks>& ranks, const at::Tensor& x);

// a + scale * b of equal shape, elementwise.
at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale = 1.0);

// The same with a `b` for some of a's rows each; no two have a row in common.
struct RowsTerm {
  at::Tensor b;
  RowRange rows;
  double scale = 1;
};
at::Tensor add_scaled_rows(const at::Tensor& a, const std::vector<RowsTerm>& terms);

}  // namespace temper::ops
