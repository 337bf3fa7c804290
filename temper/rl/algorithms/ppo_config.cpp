#include "temper/rl/algorithms/ppo_config.h"

namespace temper::rl {

void PpoSection::fields(Fields& f) {
  f.add("critic", critic,
        "directory of the initial critic: a model with score.weight, such as a reward model; null: "
        "a copy of the policy with a new value head");
  f.add("critic_learning_rate", critic_learning_rate,
        "learning rate of the critic; null: optimizer.learning_rate", at_least(0));
  f.add("share_base", share_base,
        "with LoRA, the critic is a second adapter on the policy's frozen base, not a separate "
        "model");
  f.add("gamma", gamma, "discount factor per token", between(0, 1));
  f.add("gae_lambda", gae_lambda,
        "lambda of generalized advantage estimation: 0: one-step TD error, 1: Monte Carlo returns",
        between(0, 1));
  f.add("value_clip", value_clip,
        "value clip range: values are clipped to within it of those at the start of the rollout "
        "batch; 0: no clipping",
        at_least(0));
  f.add("whiten_advantages", whiten_advantages,
        "normalize advantages to mean 0 and standard deviation 1 over the rollout batch's tokens");
  f.add("critic_warmup_steps", critic_warmup_steps,
        "number of first updates that train only the critic", at_least(0));
}

void Ppo::fields(Fields& f) {
  keys.fields(f,
              "coefficient of the KL penalty to the reference model, subtracted from each token's "
              "reward; 0: no reference model is loaded");
}

std::vector<MetricInfo> Ppo::metrics() const {
  return {
      {"value_loss", "", "value loss", "the critic's loss: clipped squared error", "falls", true,
       "value loss"},
      {"critic_grad_norm", "", "gradient norm", "of the critic, before clipping"},
      {"critic_learning_rate", "", "learning rate", "the rate of the critic's update"},
      {"value_clip_fraction", "", "clipping", "share of tokens whose value loss is the clipped one",
       "below 0.2"},
      {"returns_mean", "", "returns", "mean return, the critic's target", "rises with reward_mean"},
      {"explained_variance", "", "explained variance",
       "1 - Var(returns - values) / Var(returns): 1 is a perfect critic, 0 a constant",
       "above 0, rising towards 1; below 0 the critic harms"}};
}

PpoConfig::PpoConfig() {
  rl.set_algorithm("ppo");
  rl.group_size = 1;
}

void PpoConfig::fields(Fields& f) {
  RlConfig::fields(f);
  f.add("ppo", ppo, "the critic and generalized advantage estimation");
}

void PpoConfig::prepare() {
  const YamlNode* name = find_key(written, "rl.algorithm");
  require(!name || name->text == "ppo", "rl.algorithm", "found ", name ? name->text : "",
          ", expected ppo; the other algorithms are temper grpo's");
  RlConfig::prepare();
}

void PpoConfig::complete() {
  auto* algorithm = dynamic_cast<Ppo*>(rl.algorithm.get());
  require(algorithm != nullptr, "rl.algorithm", "expected ppo");
  algorithm->section = ppo;
  RlConfig::complete();
  if (train.max_steps && ppo.critic_warmup_steps >= *train.max_steps)
    warnings.push_back(str(where("ppo.critic_warmup_steps"), ": found ", ppo.critic_warmup_steps,
                           ", as many as train.max_steps or more: the policy never trains"));
}

void PpoConfig::validate() const {
  RlConfig::validate();
  require(!ppo.share_base || adapter.method != models::AdapterSection::Method::kNone,
          "ppo.share_base",
          "found true, but all weights train, so no frozen base can be shared; expected false, "
          "or adapter.method: lora");
  require(!ppo.share_base || !ppo.critic, "ppo.share_base", "found true, but ppo.critic, ",
          ppo.critic.value_or(""), ", is a separate model; expected false, or no ppo.critic");
  require(!ppo.share_base || mesh.is_whole(&dist::Axis::divides_work), "ppo.share_base",
          "the base is split among ranks (mesh.tensor, mesh.expert), but a critic is not; expected "
          "false");
}

}  // namespace temper::rl
