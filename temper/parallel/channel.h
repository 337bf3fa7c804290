// Collectives of one group on a thread of its own, so that they run while the model computes.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "temper/base/work_queue.h"
#include "temper/dist/group.h"

namespace temper::parallel {

// Jobs run in the order in which they were added: ranks that add them in the same order agree, and
// every sum is the same bits as on the caller's own thread.
class Channel {
 public:
  // The group is the channel's alone (dist::Group::clone_for_thread). The destructor runs the jobs
  // that are left.
  explicit Channel(std::shared_ptr<dist::Group> group);

  // The result's get() waits, and throws what `work` threw.
  std::shared_future<void> run(std::function<void(dist::Group&)> work);

 private:
  std::shared_ptr<dist::Group> group_;
  WorkQueue queue_;  // last: its jobs use the group
};

}  // namespace temper::parallel
