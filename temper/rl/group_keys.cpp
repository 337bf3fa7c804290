#include "temper/rl/group_keys.h"

#include "temper/base/error.h"
#include "temper/rl/term_names.h"

namespace temper::rl {

void GroupKeys::fields(Fields& f) {
  f.add("beta", beta, "weight of the KL term to the reference model; 0: none is loaded",
        at_least(0));
  f.add(
      "kl_estimator", kl_estimator,
      "estimator of the KL term, with d = ref - logp: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1");
  f.add("epsilon_low", epsilon_low, "the importance ratio is clipped below 1 - epsilon_low",
        at_least(0));
  f.add("epsilon_high", epsilon_high, "the importance ratio is clipped above 1 + epsilon_high",
        at_least(0));
  f.add(
      "dual_clip", dual_clip,
      "where the advantage A is negative, a token's loss is at most dual_clip |A| (3 is usual); 0: "
      "off",
      at_least(0));
  f.add(
      "importance", importance,
      "level of the importance ratio: of each token, or of the whole completion (sequence, GSPO)");
  f.add("loss_aggregation", loss_aggregation,
        "how token losses are averaged: over all tokens (token-mean), or within each completion "
        "and then over completions");
  f.add("scale_rewards", scale_rewards,
        "divide advantages by the group's standard deviation + 1e-6");
  f.add("entropy_bonus", entropy_bonus, "weight of the mean entropy, subtracted from the loss",
        at_least(0));
  f.add("dynamic_sampling", dynamic_sampling,
        "sample further prompts for groups whose rewards are all equal (DAPO)");
  f.add("max_refills", max_refills,
        "maximum number of times that dynamic sampling fills up one rollout batch", at_least(0));
  f.add("overlong_buffer", overlong_buffer,
        "soft length penalty over the last so many of max_new_tokens (DAPO); 0: none", at_least(0));
}

void GroupAlgorithm::prepare(const RolloutLimits& limits) {
  Algorithm::prepare(limits);
  if (!keys.overlong_buffer) keys.overlong_buffer = 0;
  check<ConfigError>(*keys.overlong_buffer <= limits.max_new_tokens, "rl.overlong_buffer: found ",
                     *keys.overlong_buffer, ", expected at most rollout.max_new_tokens, ",
                     limits.max_new_tokens);
}

// Without a buffer a penalty that a rollouts file recorded stays.
void GroupAlgorithm::shape(EpisodeGroup& group) const {
  if (*keys.overlong_buffer == 0) return;
  for (Episode& episode : group.episodes)
    episode.penalty = overlong_penalty(group.sampled_tokens(episode), limits_.max_new_tokens,
                                       *keys.overlong_buffer);
}

void GroupAlgorithm::assign_group_relative(EpisodeGroup& group) const {
  const std::vector<double> advantages = group_relative(group.shaped_rewards(), keys.scale_rewards);
  for (size_t i = 0; i < advantages.size(); ++i)
    group.set_advantage(group.episodes[i], advantages[i]);
}

train::Loss GroupAlgorithm::clipped_loss(const at::Tensor& ratio_M, const TokenBatch& b) const {
  train::Loss loss;
  loss.terms.push_back(policy_term(clipped_surrogate(ratio_M, b.advantage_M, keys.epsilon_low,
                                                     keys.epsilon_high, keys.dual_clip),
                                   b));
  add_kl(loss, b, keys.beta, keys.kl_estimator);
  add_entropy_bonus(loss, b, keys.entropy_bonus);
  add_clip_fraction(loss, outside_trust_region(ratio_M.detach(), b.advantage_M, keys.epsilon_low,
                                               keys.epsilon_high));
  return loss;
}

GroupKeys& group_keys(Algorithm& algorithm) {
  auto* found = dynamic_cast<GroupAlgorithm*>(&algorithm);
  check<ConfigError>(found != nullptr, "rl.algorithm: this algorithm has keys of its own");
  return found->keys;
}

}  // namespace temper::rl
