// Reference log-probabilities of groups from ranks with that role, while other groups are still
// being sampled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "temper/rl/episode.h"
#include "temper/roles/served_reference.h"

namespace temper::rl {

class ReferenceAsker {
 public:
  // max_tokens: of one forward pass. threads: groups that are asked for at once. The reference
  // outlives it.
  ReferenceAsker(roles::ServedReference& reference, int64_t max_tokens, double temperature,
                 size_t threads);
  ~ReferenceAsker();  // what waits is forgotten

  // Returns at once.
  void submit(EpisodeGroup group);
  // Waits for all that was submitted: the groups by id, with Segment::ref_logp. Those for which no
  // rank was left are not among them. Throws what asking threw.
  std::map<int64_t, EpisodeGroup> collect();

 private:
  void work();
  bool ask(EpisodeGroup& group);

  roles::ServedReference& reference_;
  const int64_t max_tokens_;
  const double temperature_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<EpisodeGroup> waiting_;
  std::map<int64_t, EpisodeGroup> done_;
  std::exception_ptr failure_;
  size_t busy_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace temper::rl
