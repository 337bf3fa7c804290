#include "temper/rl/algorithms/group_keys.h"

#include <iterator>

#include "temper/base/error.h"
#include "temper/rl/algorithms/term_names.h"

namespace temper::rl {

void GroupKeys::fields(Fields& f) {
  PolicyKeys::fields(
      f, "coefficient of the KL to the reference model; 0: no reference model is loaded");
  f.add("importance", importance, "importance ratio per token, or per completion (sequence, GSPO)");
  f.add("scale_rewards", scale_rewards,
        "divide advantages by the standard deviation of the group's rewards (+ 1e-6)");
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

void GroupAlgorithm::assign(EpisodeGroup& group) {
  const std::vector<double> advantages = credit(group.shaped_rewards());
  for (size_t i = 0; i < advantages.size(); ++i)
    group.set_advantage(group.episodes[i], advantages[i]);
}

GroupKeys& group_keys(Algorithm& algorithm) {
  auto* found = dynamic_cast<GroupAlgorithm*>(&algorithm);
  check<ConfigError>(found != nullptr, "rl.algorithm: this algorithm has its own keys");
  return found->keys;
}

}  // namespace temper::rl
