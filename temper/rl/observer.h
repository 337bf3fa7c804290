// What a run of reinforcement learning tells about itself.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "temper/metrics/report.h"
#include "temper/rl/rollout.h"
#include "temper/train/run.h"

namespace temper::rl {

// What a rollout batch says about itself, the same in the rows of all its updates.
struct BatchStatistics {
  double reward_mean = 0, reward_std = 0, length_mean = 0, truncated = 0;
  int64_t zero_std_groups = 0, groups = 0;
  std::map<std::string, double> reward_means;
};
BatchStatistics describe(const RolloutBatch& batch);

class Observer {
 public:
  explicit Observer(train::Run& run) : run_(run) {}

  // One completion of a batch: some, from all over the run, stand in its report; one now and then
  // on the console.
  void show(const Rollout& rollout);
  std::vector<Report::Table> samples() const;
  // Warns, once each, of what commonly goes wrong: rewards that never differ, completions cut
  // short, a policy that has left its reference. kl: nats a token, 0 without a reference.
  void point_out(const BatchStatistics& about, double kl);
  // `what` names the message: it is printed once a run.
  void warn_once(const char* what, const std::string& message);

 private:
  std::string prompt_end(const Rollout& rollout, size_t most) const;  // "": there is no tokenizer

  train::Run& run_;
  std::set<std::string> warned_;
  int64_t constant_batches_ = 0, batches_ = 0, show_every_ = 1;
  std::vector<Rollout> shown_;
  double console_sample_at_ = 0;
};

}  // namespace temper::rl
