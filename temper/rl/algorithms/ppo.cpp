// PPO (Schulman et al., arXiv 1707.06347) on tokens: a token is an action, what stands before it
// the state. The KL to the reference is paid token by token, the reward comes with the last one
// (Ziegler et al., arXiv 1909.08593, section 2), and a critic says what was to be expected.
#include "temper/rl/algorithms/ppo.h"

#include <ATen/ATen.h>

#include <algorithm>

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

void PpoSection::fields(Fields& f) {
  f.add("critic", critic,
        "directory of the initial critic: a model with score.weight, such as a reward model; null: "
        "a copy of the policy with a new value head",
        reads(InputFiles::kModel));
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
  require(!name || name->text == "ppo", "rl.algorithm", "found ", name ? name->found() : "",
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
  const bool fixed_rates = std::ranges::any_of(
      optimizer.groups, [](const auto& group) { return group.learning_rate.has_value(); });
  require(
      !fixed_rates || ppo.critic_learning_rate != 0, "ppo.critic_learning_rate",
      "found 0, but entries of optimizer.groups have a learning_rate, which the schedule scales "
      "in proportion to it; expected more than 0, or no learning_rate there");
  require(!ppo.share_base || !model.trains_tower(), "ppo.share_base",
          "found true, but a critic on the policy's base has no vision tower that trains "
          "(model.vision)");
  require(!ppo.share_base || has_adapter(), "ppo.share_base",
          "found true, but all weights train, so no frozen base can be shared; expected false, "
          "or adapter.method: lora");
  require(!ppo.share_base || !ppo.critic, "ppo.share_base", "found true, but ppo.critic, ",
          ppo.critic.value_or(""), ", is a separate model; expected false, or no ppo.critic");
  require(!ppo.share_base || mesh.is_whole(&dist::Axis::divides_work), "ppo.share_base",
          "the base is split among ranks (mesh.tensor, mesh.expert), but a critic is not; expected "
          "false");
}

namespace {

const Registered<MakeAlgorithm> kPpo(
    &algorithms,
    {"ppo", &make_algorithm<Ppo>, "clipped surrogate with a critic and GAE; temper ppo trains it",
     "Schulman et al., arXiv 1707.06347, equations 7 and 9; values are clipped as in its authors' "
     "program"});

}  // namespace
}  // namespace temper::rl
