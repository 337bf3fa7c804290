// PPO with a critic, as language models are trained by it: its config keys and its class.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/algorithms/policy_keys.h"
#include "temper/rl/config.h"

namespace temper::rl {

// The section `ppo`: the critic, its training and GAE.
struct PpoSection {
  std::optional<std::string> critic;           // none: a copy of the policy with a fresh head
  std::optional<double> critic_learning_rate;  // none: the policy's
  bool share_base = false;                     // the critic is an adapter on the policy's base
  double gamma = 1, gae_lambda = 0.95;
  double value_clip = 0.2;  // clipping range of the critic's loss; 0: none
  bool whiten_advantages = true;
  int64_t critic_warmup_steps = 0;
  void fields(Fields& f);
};

class Ppo : public Algorithm {
 public:
  Ppo();
  void fields(Fields& f) override;
  Needs needs() const override {
    return {
        .reference = keys.beta > 0, .min_group_size = 1, .critic = true, .old_logp = keys.beta > 0};
  }
  double dual_clip() const override { return keys.dual_clip; }
  // Every group is kept: the critic values each episode, whatever the others of its prompt got.
  bool keep(const EpisodeGroup&) const override { return true; }
  void assign(EpisodeGroup& group) override;
  void assign_batch(std::span<EpisodeGroup> groups) override;
  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return aggregate(keys.loss_aggregation, length_C, limits_.max_new_tokens);
  }
  train::Loss loss(const TokenBatch& b) const override;
  void describe(std::span<const Segment* const> update, MetricsRow& row) const override;
  std::vector<MetricInfo> metrics() const override;

  PolicyKeys keys;  // the keys of the section `rl`
  PpoSection section;
};

// The config of the verb ppo: that of reinforcement learning, with one algorithm and its critic.
struct PpoConfig : RlConfig {
  PpoConfig();
  PpoSection ppo;

  void fields(Fields& f) override;
  void prepare() override;
  std::optional<std::string> named_critic() const override { return ppo.critic; }

 protected:
  void complete() override;
  void validate() const override;
  bool has_critic() const override { return true; }
};

}  // namespace temper::rl
