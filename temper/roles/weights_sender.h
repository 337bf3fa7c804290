// Sends each version of the policy's weights to the ranks that sample, while training goes on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "temper/generate/remote/server_pool.h"

namespace temper::roles {

class WeightsSender {
 public:
  // failed: called on another thread for the place of a rank that could not be sent to; it is sent
  // nothing more.
  WeightsSender(const generate::remote::PoolOptions& ranks, std::function<void(size_t)> failed);
  ~WeightsSender();  // what was not sent is forgotten

  // Of the policy after so many updates. Returns at once.
  void send(int64_t version, std::shared_ptr<const std::string> bytes);
  // The rank of this place is sent nothing more.
  void leave_out(size_t place);

 private:
  using Message = std::pair<int64_t, std::shared_ptr<const std::string>>;
  struct Rank {
    generate::remote::PoolOptions::Server server;
    std::deque<Message> waiting;
    generate::remote::HttpClient* busy = nullptr;
    bool gone = false;
    std::thread thread;
  };
  void work(size_t place);
  void forget(Rank& rank);

  const double timeout_seconds_;
  const std::function<void(size_t)> failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace temper::roles
