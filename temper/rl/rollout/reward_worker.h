// Rewards in the background: finished groups are judged while others are still being sampled.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/rewards/reward.h"

namespace temper::rl {

// One thread calls all members. Where they wait they call `check` now and then; what it throws is
// thrown.
class RewardWorker {
 public:
  // The destructor waits for the group that is being judged, and drops those that wait.
  // most_waiting: groups that wait to be judged; it bounds the texts and tokens in memory where
  // rewards are slower than sampling.
  explicit RewardWorker(rewards::RewardSet& rewards, size_t most_waiting = kMostWaiting);
  static constexpr size_t kMostWaiting = 1024;

  // Hands over the completions of one group; waits while as many as `most_waiting` wait.
  void submit(int64_t group, std::vector<rewards::Sample> samples,
              const std::function<void()>& check);
  // Waits for all groups that were submitted: their rewards by group, in the order of the samples.
  // Throws what a reward threw.
  std::map<int64_t, std::vector<rewards::RewardResult>> collect(const std::function<void()>& check);
  // Seconds that the rewards of collected groups took since the last call.
  double seconds_since_last_call() { return std::exchange(seconds_, 0); }

 private:
  struct Judged {
    std::vector<rewards::RewardResult> results;
    double seconds = 0;
  };
  rewards::RewardSet& rewards_;
  std::vector<std::pair<int64_t, std::future<Judged>>> submitted_;  // by group
  double seconds_ = 0;
  WorkQueue queue_;  // last: its jobs use the others
};

}  // namespace temper::rl
