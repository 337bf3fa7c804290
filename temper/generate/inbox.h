// What other threads ask of an engine: requests and cancellations, in order, until it takes them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "temper/generate/scheduler.h"

namespace temper::generate {

class Inbox {
 public:
  struct Cancellation {
    RequestId id;
  };
  using Message = std::variant<std::shared_ptr<Prompt>, Cancellation>;

  // Adds a message. From any thread.
  void put(Message message);
  // Takes the messages that were put since the last call.
  std::vector<Message> take();
  bool empty() const;
  // Waits until there is something to take, at most so long. False: there is not.
  bool wait(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::vector<Message> messages_;
};

}  // namespace temper::generate
