// Linear layers of which each reads its own rows of one input: the experts of a mixture. Nothing is
// padded, no row is left out, and each element of a result is the chain of fused multiply-adds of
// ops::linear, so that it does not depend on how many rows a layer gets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/ops/layers/linear.h"
#include "temper/ops/ranks.h"

namespace temper::ops {

// activation(gate) * up of a layer that gives both. With a limit (gpt-oss): g = min(gate, limit),
// u = max(-limit, min(up, limit)), and activation(alpha g) / alpha * (u + 1).
struct GatedUnit {
  Activation activation = Activation::kSilu;
  bool interleaved = false;  // the gate is features 0, 2, ..., not the first half
  double limit = 0;          // 0: none
  double alpha = 1;
};

// What the layers read, [R, in]: a function of stored tensors that the backward pass computes again
// instead of keeping it.
struct GroupedInput {
  enum class Kind { kPlain, kRows, kGated };
  Kind kind = Kind::kPlain;
  at::Tensor x;      // plain: [R, in]; rows: [N, in]; gated: [R, 2 in]
  at::Tensor rows;   // rows: int64 [R], which rows of x
  GatedUnit unit{};  // gated
  // rows: of which each has other rows of the same x. They take turns at the gradient in x, and the
  // sum is every rank's; one without rows does so in no_rows (routing.h). Null: there are none.
  std::shared_ptr<Ranks> ranks = nullptr;

  static GroupedInput plain(at::Tensor x);
  static GroupedInput select(at::Tensor x, const std::vector<int64_t>& rows,
                             std::shared_ptr<Ranks> ranks = nullptr);
  static GroupedInput gated(at::Tensor gate_up, const GatedUnit& unit);
};

// layers[i][g] reads rows [offsets[g], offsets[g + 1]) of the input and gives those of output i,
// [R, out_i]: offsets[0] is 0, offsets.back() is R. Differentiable in x, weights and biases.
std::vector<at::Tensor> grouped_linear(const GroupedInput& input,
                                       const std::vector<int64_t>& offsets,
                                       const std::vector<std::vector<LinearOperand>>& layers);

}  // namespace temper::ops
