#include "temper/parallel/channel.h"

#include <omp.h>

#include "temper/metrics/trace.h"

namespace temper::parallel {

Channel::Channel(std::shared_ptr<dist::Group> group)
    : group_(std::move(group)), thread_([this] { serve(); }) {}

Channel::~Channel() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

std::shared_future<void> Channel::run(std::function<void(dist::Group&)> work) {
  std::packaged_task<void()> task([this, work = std::move(work)] { work(*group_); });
  std::shared_future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  asked_.notify_one();
  return done;
}

void Channel::serve() {
  omp_set_num_threads(1);  // of this thread: the processors are the model's
  trace::name_thread("communication");
  while (true) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace temper::parallel
