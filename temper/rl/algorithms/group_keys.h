// The GRPO family: algorithms that compare the completions of a prompt with each other. What their
// papers have in common is here; each one's file shows what it does otherwise.
#pragma once

#include <cstdint>
#include <optional>

#include "temper/base/config/config.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/algorithms/credit.h"
#include "temper/rl/algorithms/policy_keys.h"

namespace temper::rl {

// Each algorithm's constructor sets its paper's defaults; users may combine the techniques freely.
struct GroupKeys : PolicyKeys {
  Importance importance = Importance::kToken;  // kSequence: GSPO
  bool scale_rewards = true;
  RewardAggregation reward_aggregation = RewardAggregation::kSumThenNormalize;  // else: GDPO
  TurnCredit turn_credit = TurnCredit::kEpisode;
  double turn_gamma = 1;
  // DAPO's dynamic sampling and overlong shaping (dapo.cpp).
  bool dynamic_sampling = false;
  int64_t max_refills = 10;
  std::optional<int64_t> overlong_buffer = 0;  // none: a share of max_new_tokens where sampling
  void fields(Fields& f);

  // ρ of each token, or of its whole episode.
  at::Tensor ratio(const TokenBatch& b) const;
};

class GroupAlgorithm : public Algorithm {
 public:
  void fields(Fields& f) override { keys.fields(f); }
  void prepare(const RolloutLimits& limits) override;
  double dual_clip() const override { return keys.dual_clip; }
  Needs needs() const override { return {.reference = keys.beta > 0, .min_group_size = 2}; }
  int64_t max_refills() const override { return keys.dynamic_sampling ? keys.max_refills : 0; }
  bool keep(const EpisodeGroup& group) const override;
  bool reads_turn_rewards() const override { return keys.turn_credit == TurnCredit::kTurn; }
  void shape(EpisodeGroup& group) const override;
  // Of rewards that are normalized one by one, the sums before the batch's normalization.
  void assign(EpisodeGroup& group) override;
  void assign_batch(std::span<EpisodeGroup> groups) override;
  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return aggregate(keys.loss_aggregation, length_C, limits_.max_new_tokens);
  }
  train::Loss loss(const TokenBatch& b) const override {
    return keys.clipped_loss(keys.ratio(b), b, keys.beta);
  }

  GroupKeys keys;

 protected:
  // The advantage of each completion's tokens, from the shaped rewards of a prompt's completions.
  virtual std::vector<double> credit(std::span<const double> rewards) const {
    return group_relative(rewards, keys.scale_rewards);
  }

 private:
  bool decouples() const { return keys.reward_aggregation == RewardAggregation::kNormalizeThenSum; }
  std::vector<std::vector<double>> turns(const EpisodeGroup& group, bool penalized) const;
  // The advantages of a group's episodes by its rewards alone, or with their penalties.
  std::vector<double> advantages(const EpisodeGroup& group, bool penalized) const;
};

// The keys of an algorithm of the family, for programs that set them without a config file. Throws
// ConfigError for another algorithm.
GroupKeys& group_keys(Algorithm& algorithm);

// DAPO's soft punishment of length (Yu et al., arXiv 2503.14476, equation 13): 0 up to
// max_new_tokens - buffer tokens, then falling linearly to -1 at max_new_tokens. 0 where there is
// no buffer.
double overlong_penalty(int64_t length, int64_t max_new_tokens, int64_t buffer);

}  // namespace temper::rl
