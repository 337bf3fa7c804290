#include "temper/parallel/channel.h"

#include <omp.h>

#include "temper/metrics/trace.h"

namespace temper::parallel {

Channel::Channel(std::shared_ptr<dist::Group> group)
    : group_(std::move(group)), queue_({.on_start = [] {
        omp_set_num_threads(1);  // for this thread only: the processors are the model's
        trace::name_thread("communication");
      }}) {}

std::shared_future<void> Channel::run(std::function<void(dist::Group&)> work) {
  return queue_.run([this, work = std::move(work)] { work(*group_); }).share();
}

}  // namespace temper::parallel
