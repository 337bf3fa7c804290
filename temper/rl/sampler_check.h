// Compares the log-probabilities that the sampler recorded with those of the training pass, in the
// first update after each rollout: only there the weights are those that sampled. With an exact
// backend (native) they must be equal bit for bit. With rl.replay it compares the file's
// log-probabilities with the policy's.
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
  // The mean of the absolute differences; 0 where nothing was recorded.
  double mean() const { return tokens_ > 0 ? sum_ / tokens_ : 0; }
  // An estimate of KL(sampler ‖ trainer) in nats per token (as the metric mismatch_kl); infinite
  // where the sampler gives a token that it sampled next to no probability.
  double kl() const { return tokens_ > 0 ? kl_ / tokens_ : 0; }
  // Every token was certain (log-probability 0) to the sampler, and they were not to the trainer.
  bool sure_of_all() const { return tokens_ > 0 && unsure_ == 0 && own_ < -kSure * tokens_; }
  // Throws RunError naming the token and the first layer that differs, unless all are equal.
  void stop_on_difference(int64_t step, const TrainingBatch& batch, models::CausalLM& model) const;

 private:
  static constexpr double kSure = 0.01;  // nats per token
  double largest_ = 0, sum_ = 0, tokens_ = 0;
  double kl_ = 0, own_ = 0;  // sums: of the estimates, of the trainer's log-probabilities
  double unsure_ = 0;        // tokens that the sampler was not certain of
  bool elsewhere_ = false;   // another rank has the largest
  int64_t tag_ = -1, token_ = 0;
};

}  // namespace temper::rl
