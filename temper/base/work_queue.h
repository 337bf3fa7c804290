// A queue of jobs and the threads that run them, for work that goes on beside the caller's own:
//
//   WorkQueue queue;
//   std::future<Scores> scores = queue.run([&] { return score(rows); });
//   ...                                  // meanwhile, something else
//   use(scores.get());                   // waits; throws what score() threw
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace temper {

struct WorkQueueOptions {
  // Jobs that wait for a thread when the queue is destroyed are run first, or dropped.
  enum class AtEnd { kRun, kDrop };

  // The most threads. One is started at once, others when a job finds none idle; where the system
  // gives no further thread, jobs wait for the existing ones.
  size_t threads = 1;
  // The most jobs that wait for a thread; run() waits while there are as many (`while_full`).
  size_t most_waiting = std::numeric_limits<size_t>::max();
  AtEnd at_end = AtEnd::kRun;
  // Called on each thread before its first job, for example to name the thread in a trace.
  std::function<void()> on_start{};
};

// Jobs are begun in the order in which they were added: with one thread, each after the one before
// it has ended. All members may be called from any thread.
class WorkQueue {
 public:
  explicit WorkQueue(WorkQueueOptions options = {});
  // Waits for the jobs that are running, and, unless AtEnd::kDrop says otherwise, for all others.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Adds a job: a function without arguments, called once and destroyed before its future is ready.
  // The future gives what it returns or throws; ignored, both are lost. That of a dropped job
  // throws std::future_error. Where this waits as most_waiting says, `while_full` is called every
  // 200 ms, on the caller's thread; what it throws is thrown, and the job is not added.
  template <class Job>
  std::future<std::invoke_result_t<Job&>> run(Job job,
                                              const std::function<void()>& while_full = {}) {
    Promised<Job> promised{{}, std::move(job)};
    std::future<std::invoke_result_t<Job&>> result = promised.result.get_future();
    add(Task(std::move(promised)), while_full);
    return result;
  }

  // Drops the jobs that wait, and all that are added from now on. Does not wait for those that are
  // running.
  void stop();

 private:
  // Not a std::packaged_task: that keeps its function, and what this captured, as long as somebody
  // has the future.
  template <class Job>
  struct Promised {
    using Result = std::invoke_result_t<Job&>;
    std::promise<Result> result;  // first: a dropped job is destroyed before its future knows
    std::optional<Job> job;

    void operator()() {
      try {
        if constexpr (std::is_void_v<Result>) {
          (*job)();
          job.reset();
          result.set_value();
        } else {
          Result value = (*job)();
          job.reset();
          result.set_value(std::forward<Result>(value));
        }
      } catch (...) {
        job.reset();
        result.set_exception(std::current_exception());
      }
    }
  };
  using Task = std::packaged_task<void()>;  // std::function would need jobs that can be copied
  void add(Task task, const std::function<void()>& while_full);
  void start_thread();
  void work();

  const WorkQueueOptions options_;
  std::mutex mutex_;
  std::condition_variable added_, taken_;
  std::deque<Task> waiting_;
  size_t idle_ = 0;  // threads that wait for a job
  bool stopped_ = false, ending_ = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace temper
