// The promise that the sampler's log-probabilities are the trainer's, to the bit, checked at the
// first update after each rollout: the only one made with the weights that sampled. Also how far a
// file's are from the policy's (rl.replay).
#pragma once

#include <cstdint>

#include "temper/dist/group.h"
#include "temper/models/model.h"
#include "temper/rl/batch.h"

namespace temper::rl {

class SamplerCheck {
 public:
  // Compares what the sampler recorded, where it did, with a training pass's own log-probabilities
  // [M].
  void add(const TrainingBatch& batch, const train::ForwardPass& pass, const at::Tensor& logp_M);
  // Makes these numbers those of all ranks. Every rank must call it.
  void reduce(dist::Group& group);
  double largest() const { return largest_; }
  // Of the absolute differences; 0 where nothing was recorded.
  double mean() const { return tokens_ > 0 ? sum_ / tokens_ : 0; }
  // Throws RunError naming the token and the first layer that differs, unless all are equal.
  void stop_on_difference(int64_t step, const TrainingBatch& batch, models::CausalLM& model) const;

 private:
  double largest_ = 0, sum_ = 0, tokens_ = 0;
  bool elsewhere_ = false;  // another rank has the largest
  int64_t tag_ = -1, token_ = 0;
};

}  // namespace temper::rl
