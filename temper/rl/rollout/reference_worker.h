// Reference log-probabilities of finished groups, computed by ranks with that role while other
// groups are still being sampled.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <vector>

#include "temper/base/work_queue.h"
#include "temper/rl/episode.h"
#include "temper/workers/served_reference.h"

namespace temper::rl {

// One thread calls all members. Where they wait they call `check` now and then; what it throws is
// thrown.
class ReferenceWorker {
 public:
  // max_tokens: of one forward pass. threads: groups that are computed at once. most_waiting:
  // groups that wait for a thread; it bounds those in memory where the reference is slower than
  // sampling. The reference outlives the worker. The destructor waits for the groups that are being
  // computed, and drops those that wait.
  ReferenceWorker(workers::ServedReference& reference, int64_t max_tokens, double temperature,
                  size_t threads, size_t most_waiting = kMostWaiting);
  static constexpr size_t kMostWaiting = 1024;

  // Hands over a group; waits while as many as `most_waiting` wait for a thread.
  void submit(EpisodeGroup group, const std::function<void()>& check);
  // Waits for all groups that were submitted: by id, with Segment::ref_logp. Groups for which no
  // rank with the role was left are not among them. Throws what computing them threw.
  std::map<int64_t, EpisodeGroup> collect(const std::function<void()>& check);

 private:
  // Nothing where no rank with the role is left.
  std::optional<EpisodeGroup> compute(EpisodeGroup group) const;

  workers::ServedReference& reference_;
  const int64_t max_tokens_;
  const double temperature_;
  std::vector<std::future<std::optional<EpisodeGroup>>> submitted_;
  WorkQueue queue_;  // last: its jobs use the others
};

}  // namespace temper::rl
