// Any program as a reward: it is started as one or more long-lived workers, reads a JSON object a
// line on its standard input and answers each with a line on its standard output, a number or
// {"reward": x}. A request has an `id`; an answer may repeat it, and is then this request's alone.
#pragma once

#include <memory>
#include <vector>

#include "temper/process/worker.h"
#include "temper/rewards/reward.h"

namespace temper::rewards {

class CommandReward : public Reward {
 public:
  // Throws ConfigError where the program is not found.
  explicit CommandReward(RewardSection section);

  // The samples are shared out among the workers. A worker that hangs, ends or answers nonsense is
  // replaced; it costs its sample alone, and the time limit at most. Lines that answer nothing cost
  // no sample and are counted (Verdict::unasked_lines).
  std::vector<Verdict> judge(std::span<const Sample> samples) override;
  bool needs_text() const override { return false; }

 private:
  void ask(process::Worker& worker, const Sample& sample);
  void wait() const;
  Verdict verdict(const process::Worker::Answer& answer) const;

  RewardSection section_;
  std::vector<std::unique_ptr<process::Worker>> workers_;
  int64_t requests_ = 0;  // number of requests sent so far; the last one's id
};

}  // namespace temper::rewards
