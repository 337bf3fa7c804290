#include "temper/rl/group_keys.h"

#include <iterator>

#include "temper/base/error.h"
#include "temper/rl/term_names.h"

namespace temper::rl {

void GroupKeys::fields(Fields& f) {
  f.add("beta", beta,
        "coefficient of the KL to the reference model; 0: no reference model is loaded",
        at_least(0));
  f.add(
      "kl_estimator", kl_estimator,
      "estimator of the KL term, with d = ref - logp: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1");
  f.add("epsilon_low", epsilon_low, "the importance ratio is clipped below 1 - epsilon_low",
        at_least(0));
  f.add("epsilon_high", epsilon_high, "the importance ratio is clipped above 1 + epsilon_high",
        at_least(0));
  f.add("dual_clip", dual_clip,
        "dual-clip PPO: for negative advantages A, a token's loss is at most dual_clip |A| (often "
        "3, at least 1); 0: off",
        at_least(0));
  f.add("importance", importance, "importance ratio per token, or per completion (sequence, GSPO)");
  f.add("loss_aggregation", loss_aggregation,
        "mean over all tokens (token-mean), or over completions of their tokens' mean, sum, or sum "
        "over max_new_tokens (seq-mean-token-mean, -sum, -sum-norm)");
  f.add("scale_rewards", scale_rewards,
        "divide advantages by the standard deviation of the group's rewards (+ 1e-6)");
  f.add("entropy_bonus", entropy_bonus,
        "coefficient of the mean token entropy, which is subtracted from the loss", at_least(0));
  f.add("dynamic_sampling", dynamic_sampling,
        "replace groups whose rewards are all equal by groups of further prompts (DAPO)");
  f.add("max_refills", max_refills,
        "maximum number of rounds of dynamic sampling per rollout batch", at_least(0));
  f.add("overlong_buffer", overlong_buffer,
        "soft overlong penalty (DAPO): rises to 1 over the last overlong_buffer tokens of "
        "max_new_tokens; 0: none",
        at_least(0));
}

void GroupAlgorithm::prepare(const RolloutLimits& limits) {
  Algorithm::prepare(limits);
  if (!keys.overlong_buffer) keys.overlong_buffer = 0;
  check<ConfigError>(*keys.overlong_buffer <= limits.max_new_tokens, "rl.overlong_buffer: found ",
                     *keys.overlong_buffer, ", expected at most rollout.max_new_tokens, ",
                     limits.max_new_tokens);
}

// Lengths count what rollout.max_new_tokens limits, the environment's tokens included.
void GroupAlgorithm::shape(EpisodeGroup& group) const {
  if (*keys.overlong_buffer == 0) return;
  for (Episode& episode : group.episodes)
    episode.penalty = overlong_penalty(std::ssize(group.completion(episode)),
                                       limits_.max_new_tokens, *keys.overlong_buffer);
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
  check<ConfigError>(found != nullptr, "rl.algorithm: this algorithm has its own keys");
  return found->keys;
}

}  // namespace temper::rl
