// A forward pass as this rank computes it: whole, or where ranks divide a pass's tokens
// (mesh.context, nn/token_share.h), as a pass of the rank's own tokens and of the targets that
// these predict. What is found at the targets is gathered, so that every rank has all of it: losses
// need not know of the division.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "temper/models/model.h"
#include "temper/nn/token_share.h"
#include "temper/train/forward_pass.h"

namespace temper::train {

// The part of a pass that is one rank's; kept by the pass (ForwardPass::own), as its backward pass
// may read it.
struct OwnPass {
  OwnPass(const ForwardPass& whole, std::shared_ptr<dist::Group> ranks);

  std::shared_ptr<const nn::TokenShare> share;
  nn::DividedRows targets, scored;
  ForwardPass pass;
};

class RankPass {
 public:
  // Of a model whose tokens are divided among model.token_ranks, if there are any. Throws RunError
  // for a pass of several adapters that is divided. The pass outlives the backward pass.
  RankPass(const models::Model& model, const ForwardPass& pass);

  bool is_divided() const { return own_ != nullptr; }
  // What the rank computes: of a pass with targets (or scored tokens) always some.
  const ForwardPass& pass() const { return own_ ? own_->pass : whole_; }
  // What a model's forward takes for it.
  nn::Context context(const PassOptions& options) const;
  // Values at pass()'s targets, or scored tokens, [M, ..] or undefined -> those of all of the whole
  // pass's; differentiable, where every rank goes on with all of them alike.
  at::Tensor of_targets(const at::Tensor& own_M) const;
  at::Tensor of_scored(const at::Tensor& own_K) const;
  // The other way: what belongs to pass()'s targets of values [M, ..] at the whole pass's.
  at::Tensor at_own_targets(const at::Tensor& all_M) const;

 private:
  const ForwardPass& whole_;
  std::shared_ptr<OwnPass> own_;  // null: the whole
};

}  // namespace temper::train
