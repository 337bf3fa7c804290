// Jobs of several clients on a few threads: clients take turns, so that none waits for all the jobs
// of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "temper/base/work_queue.h"

namespace temper::serve {

class TurnQueue {
 public:
  // most_of_client: most jobs of one client that run at once.
  explicit TurnQueue(size_t threads = 1, int64_t most_of_client = INT64_MAX)
      : most_of_client_(most_of_client), workers_({.threads = threads}) {}

  // Jobs of one client begin in the order in which they were added. From any thread; waits for
  // nothing.
  void run(const std::string& client, std::function<void()> job);
  // Takes out the jobs that have not begun. From any thread.
  std::deque<std::function<void()>> take_waiting();

 private:
  struct Client {
    std::deque<std::function<void()>> waiting;
    int64_t running = 0;
  };
  void run_next();
  // The first client of `turns_` that may run a job; null: none.
  Client* next_client(std::string& name);

  const int64_t most_of_client_;
  std::mutex mutex_;
  std::map<std::string, Client> clients_;  // those of whom a job waits or runs
  std::deque<std::string> turns_;          // those of whom a job waits
  WorkQueue workers_;                      // last: its jobs use the others
};

}  // namespace temper::serve
