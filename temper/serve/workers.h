// A pool of threads for work that takes a while. One is started at once, and others when they are
// needed: where the system has none to give, jobs wait for those that there are.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace temper::serve {

class Workers {
 public:
  explicit Workers(size_t most_threads);
  ~Workers();  // waits for all posted jobs
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Runs `job` on one of the threads, in the order of posting. What `job` throws is dropped: it has
  // to tell whoever waits for it. Throws only where no memory is left for one more job.
  void post(std::function<void()> job);

 private:
  void work();

  const size_t most_threads_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> jobs_;
  size_t idle_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace temper::serve
