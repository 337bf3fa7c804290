// The config of the verb ppo: that of reinforcement learning, with one algorithm and its critic.
#pragma once

#include "temper/rl/algorithms/ppo.h"
#include "temper/rl/config.h"

namespace temper::rl {

struct PpoConfig : RlConfig {
  PpoConfig();
  PpoSection ppo;

  void fields(Fields& f) override;
  void prepare() override;

 protected:
  void complete() override;
  void validate() const override;
  bool has_critic() const override { return true; }
};

}  // namespace temper::rl
