// Any program as a reward: it is started as one or more long-lived workers, reads a JSON object a
// line on its standard input and answers each with a line on its standard output, a number or
// {"reward": x}.
#pragma once

#include <memory>
#include <vector>

#include "temper/rewards/reward.h"
#include "temper/rewards/worker.h"

namespace temper::rewards {

class CommandReward : public Reward {
 public:
  // Throws ConfigError where the program is not found. Relative paths among the arguments that name
  // files are made absolute: the workers run in directories of their own.
  explicit CommandReward(RewardSection section);

  // The samples are shared out among the workers. A worker that hangs, ends or answers nonsense is
  // replaced; it costs its sample alone, and the time limit at most.
  std::vector<Verdict> judge(std::span<const Sample> samples) override;
  bool needs_text() const override { return false; }

 private:
  void wait() const;
  Verdict verdict(const Worker::Answer& answer) const;

  RewardSection section_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace temper::rewards
