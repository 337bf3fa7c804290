#include "temper/rl/rollout/reward_worker.h"

#include "temper/base/clock.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/activity.h"
#include "temper/metrics/trace.h"

namespace temper::rl {

RewardWorker::RewardWorker(rewards::RewardSet& rewards, size_t most_waiting)
    : rewards_(rewards),
      queue_({.most_waiting = most_waiting, .at_end = WorkQueueOptions::AtEnd::kDrop}) {}

void RewardWorker::submit(int64_t group, std::vector<rewards::Sample> samples,
                          const std::function<void()>& check) {
  auto judge = [this, samples = std::move(samples)] {
    const trace::Span span("rewards");
    const double start = steady_seconds();
    Judged judged{.results = rewards_.judge(samples)};
    judged.seconds = steady_seconds() - start;
    return judged;
  };
  submitted_.emplace_back(group, queue_.run(std::move(judge), check));
}

std::map<int64_t, std::vector<rewards::RewardResult>> RewardWorker::collect(
    const std::function<void()>& check) {
  std::map<int64_t, std::vector<rewards::RewardResult>> results;
  Activity activity("rewarding: group", std::ssize(submitted_));
  for (auto& [group, future] : std::exchange(submitted_, {})) {
    dist::wait_for(future, [&] {
      activity.advance(0);
      check();
    });
    activity.advance();
    Judged judged = future.get();
    seconds_ += judged.seconds;
    results[group] = std::move(judged.results);
  }
  return results;
}

}  // namespace temper::rl
