// The results of student and teacher on the same tokens. Suffixes: N the pass's tokens, M its
// targets.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "temper/models/model.h"
#include "temper/nn/blocks.h"
#include "temper/ops/layers/attention_maps.h"
#include "temper/ops/logits/top_tokens.h"
#include "temper/train/forward_pass.h"

namespace temper::distill {

// Tensors of a layer: nothing, what its block gives (before any final norm), or its queries and
// keys.
enum class Tap { kNone, kOutput, kAttention };

// One model's side.
class Side {
 public:
  // Runs the model on the context's forest and keeps the tap of `layers`.
  Side(models::CausalLM& model, const nn::Context& context, Tap tap,
       const std::vector<int64_t>& layers);

  models::CausalLM& model() const { return *model_; }
  const at::Tensor& hidden() const { return hidden_NH_; }  // hidden states after the final norm
  const at::Tensor& output(int64_t layer) const { return outputs_.at(layer); }  // [N, H]
  const ops::AttentionInputs& attention(int64_t layer) const { return attention_.at(layer); }

 private:
  models::CausalLM* model_;
  at::Tensor hidden_NH_;
  std::map<int64_t, at::Tensor> outputs_;
  std::map<int64_t, ops::AttentionInputs> attention_;
};

struct Reading {
  const train::ForwardPass& pass;
  Side student;
  std::optional<Side> teacher;        // none: `top` has its numbers
  std::optional<ops::TopTokens> top;  // the teacher's likeliest tokens at the targets
};

// The vocabulary head of a model as the ops read it: its format, and hidden states of the pass's
// targets [M, H].
ops::TeacherHead head_at_targets(const Side& side, const train::ForwardPass& pass);

}  // namespace temper::distill
