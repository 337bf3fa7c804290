// PPO (Schulman et al., arXiv 1707.06347) on tokens: a token is an action, what stands before it
// the state. The KL to the reference is paid token by token, the reward comes with the last one
// (Ziegler et al., arXiv 1909.08593, section 2), and a critic says what was to be expected.
#include "temper/rl/algorithms/ppo.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/rl/algorithms/gae.h"

namespace temper::rl {

Ppo::Ppo() {
  keys.beta = 0.05;
  keys.kl_estimator = train::KlEstimator::kK1;
  keys.loss_aggregation = Aggregation::kTokenMean;
}

// r_t = -β KL_t, the reward added at the last token; GAE(γ, λ) (arXiv 1506.02438, equation 16) over
// the tokens that the policy sampled; what the critic learns is A_t + V_t.
void Ppo::assign(EpisodeGroup& group) {
  for (const Episode& episode : group.episodes) {
    std::vector<Segment*> sampled;
    for (const int32_t s : episode.path)
      if (Segment& one = group.segments[static_cast<size_t>(s)]; one.sampled)
        sampled.push_back(&one);
    std::vector<double> reward_T, value_T;
    for (const Segment* one : sampled) {
      check(one->value.size() == one->tokens.size(), "ppo: ", one->tokens.size(), " tokens and ",
            one->value.size(), " values of the critic");
      for (const double kl : keys.token_kl(*one)) reward_T.push_back(-keys.beta * kl);
      value_T.insert(value_T.end(), one->value.begin(), one->value.end());
    }
    reward_T.back() += episode.shaped();
    const std::vector<double> advantage_T =
        generalized_advantages(reward_T, value_T, section.gamma, section.gae_lambda);
    size_t t = 0;
    for (Segment* one : sampled) {
      one->advantage.clear();
      one->returns.clear();
      for (size_t i = 0; i < one->tokens.size(); ++i, ++t) {
        one->advantage.push_back(static_cast<float>(advantage_T[t]));
        one->returns.push_back(static_cast<float>(advantage_T[t] + value_T[t]));
      }
    }
  }
}

// Advantages are whitened over all tokens of the batch, after the returns were made of them.
void Ppo::assign_batch(std::span<EpisodeGroup> groups) {
  Algorithm::assign_batch(groups);
  if (section.whiten_advantages) whiten_advantages(groups);
}

// The policy's loss, equation 7: min(ρ A, clip(ρ, 1 - ε, 1 + ε) A), without a KL term. The
// critic's: 1/2 max((v - R)², (clip(v, V - c, V + c) - R)²), the mean over the update's tokens:
// equation 9's squared error, clipped around the values V that the batch began with as the authors'
// program does.
train::Loss Ppo::loss(const TokenBatch& b) const {
  // The KL is part of the rewards.
  train::Loss loss =
      keys.clipped_loss(train::importance_ratio(b.logp_M, b.old_logp_M), b, /*kl_weight=*/0);
  const double c = section.value_clip;
  const at::Tensor error_M = (b.value_M - b.return_M).square(),
                   near_M = at::clamp(b.value_M, b.old_value_M - c, b.old_value_M + c),
                   clipped_M = c > 0 ? (near_M - b.return_M).square() : error_M;
  loss.terms.push_back({.name = "value_loss",
                        .coefficient = 0.5,
                        .value = at::maximum(error_M, clipped_M),
                        .denominator = b.update_tokens,
                        .separate = true});
  loss.means.push_back({"value_clip_fraction",
                        train::ordered_sum((clipped_M > error_M).to(at::kFloat)),
                        static_cast<double>(error_M.numel())});
  return loss;
}

void Ppo::describe(std::span<const Segment* const> update, MetricsRow& row) const {
  std::vector<double> value, returns;
  for (const Segment* segment : update) {
    value.insert(value.end(), segment->value.begin(), segment->value.end());
    returns.insert(returns.end(), segment->returns.begin(), segment->returns.end());
  }
  row.set("returns_mean", mean_of(returns));
  row.set("explained_variance", explained_variance(value, returns));
  if (keys.beta > 0) row.set("kl", keys.mean_token_kl(update));
}

namespace {

const Registered<MakeAlgorithm> kPpo(
    &algorithms,
    {"ppo", &make_algorithm<Ppo>, "clipped surrogate with a critic and GAE; temper ppo trains it",
     "Schulman et al., arXiv 1707.06347, equations 7 and 9; values are clipped as in its authors' "
     "program"});

}  // namespace
}  // namespace temper::rl
