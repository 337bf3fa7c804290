#include "temper/serve/workers.h"

#include <system_error>

namespace temper::serve {

Workers::Workers(size_t most_threads) : most_threads_(most_threads) {
  threads_.reserve(most_threads);
  threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::post(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  posted_.notify_one();
  if (jobs_.size() <= idle_ || threads_.size() >= most_threads_) return;
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The job waits for another thread.
  }
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    posted_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (...) {
      // One job's failure is not that of the program.
    }
    job = nullptr;  // frees what the job holds before the next one begins
    lock.lock();
  }
}

}  // namespace temper::serve
