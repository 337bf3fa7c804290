// Config keys that PPO and the algorithms of the GRPO family share, and the loss that they
// describe.
#pragma once

#include <span>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/rl/algorithms/terms.h"
#include "temper/rl/episode.h"

namespace temper::rl {

struct PolicyKeys {
  double beta = 0;
  train::KlEstimator kl_estimator = train::KlEstimator::kK3;
  double epsilon_low = 0.2, epsilon_high = 0.2;
  double dual_clip = 0;
  Aggregation loss_aggregation = Aggregation::kSeqMeanTokenMean;
  double entropy_bonus = 0;

  // beta_help: what the KL that `beta` weighs does in this algorithm.
  void fields(Fields& f, const char* beta_help);

  train::RatioBounds bounds() const { return {1 - epsilon_low, 1 + epsilon_high}; }
  // The tokens' losses, which are minimized, + kl_weight · KL - entropy_bonus · entropy; and the
  // metric clip_fraction, the mean of outside_M: 1 where a token's ratio is out of bounds.
  train::Loss loss_of(const at::Tensor& loss_M, const at::Tensor& outside_M, const TokenBatch& b,
                      double kl_weight) const;
  // min(ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A) - kl_weight · KL + entropy_bonus · entropy,
  // maximized; and the metric clip_fraction.
  train::Loss clipped_loss(const at::Tensor& ratio_M, const TokenBatch& b, double kl_weight) const;

  // For algorithms that pay the KL as a part of the rewards: the estimate at each token of a
  // sampled segment, of the policy that its rollout batch began with; zeros where beta is 0.
  std::vector<double> token_kl(const Segment& segment) const;
  // Its mean over all tokens of the segments.
  double mean_token_kl(std::span<const Segment* const> segments) const;
};

}  // namespace temper::rl
