#include "temper/rl/judge.h"

#include <chrono>
#include <utility>

#include "temper/base/clock.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/trace.h"

namespace temper::rl {

static constexpr std::chrono::milliseconds kLook{200};  // whether all other ranks are there

Judge::Judge(rewards::RewardSet& rewards) : rewards_(rewards), thread_([this] { work(); }) {}

Judge::~Judge() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void Judge::submit(int64_t group, std::vector<rewards::Sample> samples) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({group, std::move(samples)});
  }
  changed_.notify_all();
}

std::map<int64_t, std::vector<rewards::RewardResult>> Judge::collect() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return failure_ || (waiting_.empty() && !busy_); };
  while (!changed_.wait_for(lock, kLook, ended)) dist::check_peers();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(done_, {});
}

double Judge::seconds_since_last_call() {
  const std::lock_guard lock(mutex_);
  return std::exchange(seconds_, 0);
}

void Judge::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const Work work = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    const double start = steady_seconds();
    std::vector<rewards::RewardResult> judged;
    std::exception_ptr failure;
    try {
      const trace::Span span("rewards");
      judged = rewards_.judge(work.samples);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    seconds_ += steady_seconds() - start;
    if (failure)
      failure_ = failure;
    else
      done_[work.group] = std::move(judged);
    changed_.notify_all();
  }
}

}  // namespace temper::rl
