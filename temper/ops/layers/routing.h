// Mixtures of experts (Shazeer et al., arXiv 1701.06538): the choice of each token's experts, the
// rows that each expert gets, and the combination of their results. Every row's numbers are its own
// (temper/ops/native/kernels/routing.h), whatever else is in the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/ops/ranks.h"
#include "temper/ops/specs.h"

namespace temper::ops {

struct Routing {
  at::Tensor expert;  // [N, chosen] int64, each row ascending
  at::Tensor weight;  // [N, chosen], of the logits' dtype
};
// logits [N, experts]; bias [experts], which counts for the choice alone, or undefined. The weights
// are differentiable in the logits. Logits without any finite number give some choice.
Routing route(const RouterSpec& spec, const at::Tensor& logits, const at::Tensor& bias = {});

// The rows of a batch by expert: row r of the R = N · chosen is token[r]'s. Within an expert's rows
// tokens ascend.
struct ExpertRows {
  std::vector<int64_t> experts;  // experts that some token goes to, ascending
  std::vector<int64_t> offsets;  // rows [offsets[g], offsets[g + 1]) are those of experts[g]
  std::vector<int64_t> token;    // [R] token of each row
  at::Tensor place;              // [N, chosen] int64: the rows of each token
};
// `expert` of a Routing. On other devices than the host this waits for it.
ExpertRows rows_by_expert(const at::Tensor& expert, int64_t experts);

// Those of experts [first, first + count) alone: `token` has their rows, and `place` counts from
// the first of them, -1 for rows of other experts.
ExpertRows rows_of_experts(const ExpertRows& rows, int64_t first, int64_t count);

// y[n] = Σ_j weight[n, j] x[place[n, j]], by ascending expert: x [R, H], weight [N, chosen] to
// [N, H]. Differentiable in both.
//
// With ranks of which each has some of the experts, ascending, and their rows (rows_of_experts):
// each in turn goes on with the sum, so that every one gets the bits of one rank with all experts.
// All of them call this, and then differentiate it; y asks for a gradient on every rank where it is
// recorded, whatever of the rank's own experts trains.
at::Tensor combine(const at::Tensor& x, const at::Tensor& weight, const ExpertRows& rows,
                   const std::shared_ptr<Ranks>& ranks = nullptr);
// Of x [N, H] no row, [0, H]: on a rank to whose experts no token goes, in place of what
// GroupedInput::select gives the others, with whom it takes turns at the gradient in x.
at::Tensor no_rows(const at::Tensor& x, const std::shared_ptr<Ranks>& ranks);

// The softmax of the logits [N, experts]. Differentiable.
at::Tensor router_probabilities(const at::Tensor& logits);

// A term of a loss that is linear in a router's probabilities: Σ_n Σ_i weight[i] p[n, i].
struct BalanceLoss {
  at::Tensor weight;  // [experts], in the dtype and on the device of the logits
};
// y itself. Whatever is differentiated through it, the term's gradient in the logits [N, experts]
// comes on top, so that no function further up has to carry the term. `loss` is read in the
// backward pass: it may be filled after the forward pass.
at::Tensor with_balance_loss(const at::Tensor& y, const at::Tensor& logits,
                             std::shared_ptr<const BalanceLoss> loss);

}  // namespace temper::ops
