// The config of reinforcement learning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temper/env/config.h"
#include "temper/rewards/config.h"
#include "temper/rl/sections.h"
#include "temper/train/config.h"

namespace temper::rl {

struct RlConfig : train::RunConfig {
  RlSection rl;
  RlRolloutSection rollout;
  std::vector<rewards::RewardSection> rewards;
  env::EnvironmentSection environment;

  void fields(Fields& f) override;
  void prepare() override;
  bool has_dropout() const override { return false; }
  std::vector<std::string> evaluated_metrics() const override;
  // The directory or id of the critic that the config names.
  virtual std::optional<std::string> named_critic() const { return {}; }
  RolloutLimits rollout_limits() const;
  // Whether an adapter that servers are sent may have rows of embeddings.
  bool servers_take_rows() const;
  const generate::RolloutSection* sampling() const override { return &rollout; }
  ops::CacheDtype cache_dtype() const override { return rollout.cache_dtype; }

 protected:
  void complete() override;
  std::vector<train::MissingKey> missing() const override;
  void validate() const override;
  std::string no_rollout_role() const override;
  std::string no_reference_role() const override;
  std::string no_reward_role() const override;
  virtual bool has_critic() const { return false; }  // one trains beside the policy

 private:
  void refuse_keys_of_others();
  void refuse_empty_programs() const;
  void validate_batches() const;
  void validate_sampler() const;
  void validate_server_rows() const;
  void validate_mesh() const;
};

}  // namespace temper::rl
