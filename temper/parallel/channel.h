// Collectives of one group on a thread of its own, so that they run while the model computes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "temper/dist/group.h"

namespace temper::parallel {

// They run in the order in which they were asked for: ranks that ask in the same order agree, and
// every sum is the same bits as on the caller's own thread.
class Channel {
 public:
  // The group is the channel's alone (dist::Group::another).
  explicit Channel(std::shared_ptr<dist::Group> group);
  // Runs what is left.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // get() on what it returns waits, and throws what `work` threw.
  std::shared_future<void> run(std::function<void(dist::Group&)> work);

 private:
  void serve();

  std::shared_ptr<dist::Group> group_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace temper::parallel
