// Rewards in the background: groups are judged while others are still being sampled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "temper/rewards/reward.h"

namespace temper::rl {

class Judge {
 public:
  explicit Judge(rewards::RewardSet& rewards);
  ~Judge();  // what is being judged is finished, what waits is forgotten

  // Hands over the completions of one group. Returns at once.
  void submit(int64_t group, std::vector<rewards::Sample> samples);
  // Waits for all that was submitted; verdicts by group, in the order of the samples. Throws what a
  // reward threw.
  std::map<int64_t, std::vector<rewards::RewardResult>> collect();
  // Seconds that rewards took since the last call.
  double seconds_since_last_call();

 private:
  void work();

  struct Work {
    int64_t group;
    std::vector<rewards::Sample> samples;
  };
  rewards::RewardSet& rewards_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  std::map<int64_t, std::vector<rewards::RewardResult>> done_;
  std::exception_ptr failure_;
  double seconds_ = 0;
  bool busy_ = false, ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace temper::rl
