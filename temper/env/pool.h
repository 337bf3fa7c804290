// Open episodes of an environment, served on a thread of their own: what is asked here is answered
// when the environment is ready, and nothing waits for it but take().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "temper/env/config.h"
#include "temper/env/host.h"

namespace temper::env {

class EnvironmentPool {
 public:
  // Throws ConfigError for what find_problem() says of the section.
  explicit EnvironmentPool(EnvironmentSection section);
  // Ends the programs.
  ~EnvironmentPool();
  EnvironmentPool(const EnvironmentPool&) = delete;
  EnvironmentPool& operator=(const EnvironmentPool&) = delete;

  // Begins an episode with a row's fields; gives its number. `where` names the row in errors. Its
  // answer comes from take(), as that of each step() does. An episode is asked one thing at a time,
  // and is to be closed once.
  int64_t open(std::shared_ptr<const Json> row, std::string where = "the row");
  void step(int64_t episode, Turn turn);
  void close(int64_t episode);

  // The answers that have come, in no particular order; waits for one at most so long. Throws an
  // environment's DataError about a row.
  std::vector<Reply> take(std::chrono::milliseconds most);

 private:
  using Order = std::function<void(Host&)>;
  void put(Order order);
  void serve();

  const EnvironmentSection section_;
  std::unique_ptr<Host> host_;  // used by the pool's thread alone
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Order> orders_;
  std::vector<Reply> replies_;
  std::exception_ptr failure_;
  bool ending_ = false;
  int64_t next_episode_ = 0;
  int wake_ = -1;  // an eventfd that an order makes readable
  std::thread thread_;
};

}  // namespace temper::env
