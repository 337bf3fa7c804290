#include "temper/rl/ppo_config.h"

#include "temper/rl/term_names.h"

namespace temper::rl {

void PpoSection::fields(Fields& f) {
  f.add("critic", critic,
        "directory of the critic that the run begins with: a model with score.weight, such as a "
        "reward model; null: a copy of the policy with a fresh head");
  f.add("critic_learning_rate", critic_learning_rate,
        "base rate of the critic's optimizer; null: optimizer.learning_rate", at_least(0));
  f.add("share_base", share_base,
        "with adapter.method: lora, the critic is a second adapter on the policy's frozen base "
        "instead of a model of its own");
  f.add("gamma", gamma, "discount of rewards that come a token later", between(0, 1));
  f.add("gae_lambda", gae_lambda,
        "generalized advantage estimation: 0 trusts the critic, 1 the rewards", between(0, 1));
  f.add("value_clip", value_clip,
        "the critic's values are clipped to within so much of those that the rollout batch began "
        "with; 0: no clipping",
        at_least(0));
  f.add("whiten_advantages", whiten_advantages,
        "advantages get mean 0 and deviation 1 over all tokens of the rollout batch");
  f.add("critic_warmup_steps", critic_warmup_steps,
        "the first so many updates train the critic alone", at_least(0));
}

void Ppo::fields(Fields& f) {
  f.add("beta", keys.beta,
        "weight of the KL to the reference model, which is taken off the reward of each token; 0: "
        "no reference is loaded",
        at_least(0));
  f.add("kl_estimator", keys.kl_estimator,
        "estimator of that KL, with d = ref - logp: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1");
  f.add("epsilon_low", keys.epsilon_low, "the importance ratio is clipped below 1 - epsilon_low",
        at_least(0));
  f.add("epsilon_high", keys.epsilon_high, "the importance ratio is clipped above 1 + epsilon_high",
        at_least(0));
  f.add("dual_clip", keys.dual_clip,
        "where the advantage A is negative, a token's loss is at most dual_clip |A|; 0: off",
        at_least(0));
  f.add("loss_aggregation", keys.loss_aggregation,
        "how the policy's token losses are averaged: over all tokens (token-mean), or within each "
        "completion and then over completions");
  f.add("entropy_bonus", keys.entropy_bonus, "weight of the mean entropy, subtracted from the loss",
        at_least(0));
}

std::vector<MetricInfo> Ppo::metrics() const {
  return {{"value_loss", "", "value loss", "the critic's loss", true, "value loss"},
          {"critic_grad_norm", "", "gradient norm", "of the critic, before clipping"},
          {"critic_learning_rate", "", "learning rate", "the rate that the critic's update used"},
          {"value_clip_fraction", "", "clipping",
           "share of tokens whose clipped value counts in the critic's loss"},
          {"returns_mean", "", "returns", "mean of what the critic learns"},
          {"explained_variance", "", "explained variance",
           "how much of the returns the critic knew: 1 all, 0 nothing"}};
}

PpoConfig::PpoConfig() {
  rl.set_algorithm("ppo");
  rl.group_size = 1;
}

void PpoConfig::fields(Fields& f) {
  RlConfig::fields(f);
  f.add("ppo", ppo, "the critic, and advantages from its values");
}

void PpoConfig::prepare() {
  const YamlNode* name = find_key(written, "rl.algorithm");
  require(!name || name->text == "ppo", "rl.algorithm", "found ", name ? name->text : "",
          ", expected ppo, the verb's only one; temper grpo has the others");
  RlConfig::prepare();
}

void PpoConfig::complete() {
  auto* algorithm = dynamic_cast<Ppo*>(rl.algorithm.get());
  require(algorithm != nullptr, "rl.algorithm", "expected ppo, the verb's only one");
  algorithm->section = ppo;
  RlConfig::complete();
}

void PpoConfig::validate() const {
  RlConfig::validate();
  require(!ppo.share_base || adapter.method != models::AdapterSection::Method::kNone,
          "ppo.share_base",
          "found true, but all weights train and there is no frozen base to share; expected false, "
          "or adapter.method: lora");
  require(!ppo.share_base || !ppo.critic, "ppo.share_base", "found true, but ppo.critic, ",
          ppo.critic.value_or(""), ", is a model of its own; expected false, or no ppo.critic");
}

}  // namespace temper::rl
