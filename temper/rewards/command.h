// Any program as a reward: it is started as one or more long-lived workers, reads a JSON object a
// line on its standard input and answers each with a line on its standard output, a number or
// {"reward": x}. A request has an `id`; an answer may repeat it, and is then this request's alone.
#pragma once

#include <memory>
#include <string>
#include <utility>
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
  // no sample and are counted (Verdict::unasked_lines). A program that has never answered and died
  // each time, kMostStarts times before it had read a question, or kMostDeaths times over several
  // rows, is dead: throws RunError where the section says that this ends the run; otherwise it is
  // not started any more, and every further sample counts as crashed.
  std::vector<Verdict> judge(std::span<const Sample> samples) override;
  void tell_failures(Heard heard) override { heard_ = std::move(heard); }
  static constexpr int64_t kMostStarts = 5, kMostDeaths = 16;
  bool needs_text() const override { return false; }

 private:
  void ask(process::Worker& worker, const Sample& sample);
  void wait() const;
  Verdict verdict(const process::Worker::Answer& answer) const;
  // Whether it is; the verdicts of the samples from `from` on are then failures.
  bool is_dead(std::span<Verdict> verdicts, size_t from) const;
  void check_lives(const process::Worker::Answer& answer, const Sample& sample);

  RewardSection section_;
  std::vector<std::unique_ptr<process::Worker>> workers_;
  Heard heard_ = [](const std::string&, bool) {};
  bool has_answered_ = false;
  std::string dead_ = {};                     // what to say about it; empty: it is not
  int64_t starts_ = 0, deaths_ = 0;           // in vain, before it ever answered
  std::shared_ptr<const Json> died_on_ = {};  // the first row that it died on
  bool several_rows_ = false;                 // it died on others, too
  int64_t requests_ = 0;                      // number of requests sent so far; the last one's id
};

}  // namespace temper::rewards
