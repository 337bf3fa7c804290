#include "temper/base/work_queue.h"

#include <chrono>
#include <system_error>

namespace temper {

// time between two calls of while_full
static constexpr std::chrono::milliseconds kBetweenCalls{200};

WorkQueue::WorkQueue(WorkQueueOptions options) : options_(std::move(options)) { start_thread(); }

WorkQueue::~WorkQueue() {
  if (options_.at_end == WorkQueueOptions::AtEnd::kDrop) stop();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();  // no job starts a thread any more
}

void WorkQueue::start_thread() {
  threads_.emplace_back([this] { work(); });
}

void WorkQueue::add(Task task, const std::function<void()>& while_full) {
  std::unique_lock lock(mutex_);
  const auto has_room = [this] { return stopped_ || waiting_.size() < options_.most_waiting; };
  while (!taken_.wait_for(lock, kBetweenCalls, has_room)) {
    if (!while_full) continue;
    lock.unlock();
    while_full();
    lock.lock();
  }
  if (stopped_) {
    lock.unlock();  // destroying the job may call this queue: without the lock
    return;
  }
  waiting_.push_back(std::move(task));
  added_.notify_one();
  if (waiting_.size() <= idle_ || threads_.size() >= options_.threads || ending_) return;
  try {
    start_thread();
  } catch (const std::system_error&) {
    // The job waits for an existing thread.
  }
}

void WorkQueue::stop() {
  std::deque<Task> dropped;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
  }
  taken_.notify_all();
}

void WorkQueue::work() {
  if (options_.on_start) options_.on_start();
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    added_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    taken_.notify_one();
    task();
    task = Task();
    lock.lock();
  }
}

}  // namespace temper
