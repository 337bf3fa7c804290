// Sends each version of the policy's weights to the ranks that sample, while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/generate/remote/server_pool.h"

namespace temper::workers {

class WeightsSender {
 public:
  // failed: called on another thread for the place of a rank that could not be sent to; it is sent
  // nothing more.
  WeightsSender(const generate::remote::PoolOptions& ranks, std::function<void(size_t)> failed);
  ~WeightsSender();  // weights that were not sent yet are dropped

  // Sends the weights of the policy after `version` updates to all ranks. Returns at once.
  void send(int64_t version, std::shared_ptr<const std::string> bytes);
  // The rank of this place is sent nothing more.
  void leave_out(size_t place);

 private:
  struct Rank {
    generate::remote::PoolOptions::Server server;
    std::unique_ptr<WorkQueue> queue;  // its thread sends to this rank alone
    // Guarded by mutex_.
    http::Client* busy = nullptr;
    bool gone = false;
  };
  void send_to(size_t place, int64_t version, const std::shared_ptr<const std::string>& bytes);
  // Sends the rank nothing more. Called with mutex_ held.
  static void stop(Rank& rank);

  const double timeout_seconds_;
  const std::function<void(size_t)> failed_;
  std::mutex mutex_;
  bool ending_ = false;
  std::vector<Rank> ranks_;  // last: its queues use the others
};

}  // namespace temper::workers
