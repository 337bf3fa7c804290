// Config keys that the algorithms of the GRPO family share; each one's file sets its paper's
// values.
#pragma once

#include <cstdint>
#include <optional>

#include "temper/base/config.h"
#include "temper/rl/algorithm.h"
#include "temper/rl/terms.h"

namespace temper::rl {

struct GroupKeys {
  double beta = 0;
  KlEstimator kl_estimator = KlEstimator::kK3;
  double epsilon_low = 0.2, epsilon_high = 0.2;
  double dual_clip = 0;
  Importance importance = Importance::kToken;
  Aggregation loss_aggregation = Aggregation::kSeqMeanTokenMean;
  bool scale_rewards = true;
  double entropy_bonus = 0;
  bool dynamic_sampling = false;
  int64_t max_refills = 10;
  std::optional<int64_t> overlong_buffer = 0;  // none: a share of max_new_tokens where sampling
  void fields(Fields& f);

  // ρ of each token, or of its whole episode.
  at::Tensor ratio(const TokenBatch& b) const {
    return importance == Importance::kSequence ? sequence_ratio(b) : importance_ratio(b);
  }
};

// What the keys above say, for the parts in which the family's papers agree: KL to the reference,
// aggregation, and the two techniques of DAPO that any of them may switch on (dapo.cpp). Credit and
// loss are each algorithm's own.
class GroupAlgorithm : public Algorithm {
 public:
  explicit GroupAlgorithm(GroupKeys defaults) : keys(defaults) {}
  void fields(Fields& f) override { keys.fields(f); }
  void prepare(const RolloutLimits& limits) override;
  double dual_clip() const override { return keys.dual_clip; }
  Needs needs() const override { return {.reference = keys.beta > 0, .min_group_size = 2}; }
  int64_t max_refills() const override { return keys.dynamic_sampling ? keys.max_refills : 0; }
  void shape(EpisodeGroup& group) const override;
  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return aggregate(keys.loss_aggregation, length_C, limits_.max_new_tokens);
  }

  GroupKeys keys;

 protected:
  // Gives each episode its group-relative advantage (terms.h).
  void assign_group_relative(EpisodeGroup& group) const;
  // min(ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A) - β KL + bonus · entropy, maximised.
  train::Loss clipped_loss(const at::Tensor& ratio_M, const TokenBatch& b) const;
};

// The keys of an algorithm of the family, for programs that set them without a config file. Throws
// ConfigError for another algorithm.
GroupKeys& group_keys(Algorithm& algorithm);

// DAPO's soft punishment of length (Yu et al., arXiv 2503.14476, equation 13): 0 up to
// max_new_tokens - buffer tokens, then falling linearly to -1 at max_new_tokens. 0 where there is
// no buffer.
double overlong_penalty(int64_t length, int64_t max_new_tokens, int64_t buffer);

}  // namespace temper::rl
