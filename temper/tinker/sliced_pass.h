// A pass whose vocabulary's head is computed in slices, between which others may use the model: of
// positions with several targets each, whose logits are computed once a position, and of very many
// positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "temper/train/forward_pass.h"

namespace temper::tinker {

// The loss's derivatives by log-probabilities, of all targets of a pass.
using Derive = std::function<std::vector<float>(std::span<const float> logprobs)>;

// Positions, and targets, of which the head computes at once.
inline constexpr size_t kRowsAtOnce = size_t{1} << 14, kTargetsAtOnce = size_t{1} << 17;

// The targets of a pass's rows, those of one row after the other.
struct RowTargets {
  std::vector<size_t> offset{0};  // of each row's first one, and the end
  std::vector<int64_t> token;
};

class SlicedPass {
 public:
  // pass: one adapter's; each of its rows is named once, with any of its targets. What step()
  // computes is added to the adapter's gradients where the pass trains.
  SlicedPass(models::CausalLM& model, train::ForwardPass pass, RowTargets targets, bool trains,
             Derive derive);
  // A slice. True: it was the last one.
  bool step();

 private:
  struct Part {  // rows [begin, end), and the most targets that one of them has
    size_t begin = 0, end = 0, columns = 0;
  };
  void run_body();
  at::Tensor logp_of(const Part& part) const;
  size_t first_target(const Part& part) const { return targets_.offset[part.begin]; }
  void go_back(const Part& part, const at::Tensor& logp) const;

  models::CausalLM& model_;
  const train::ForwardPass pass_;
  const RowTargets targets_;
  const bool trains_;
  const Derive derive_;
  std::vector<Part> parts_;
  size_t next_ = 0;              // slice: the body's, the parts' forward, the parts' backward
  at::Tensor hidden_, leaf_;     // of the body; what the head's gradients are added up in
  std::vector<float> logprobs_;  // by target, so far
  std::vector<float> gradient_;  // by target
};

}  // namespace temper::tinker
