// The requests of one model, in the order of their seq_id whatever the order of their arrival, each
// once however often it arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/http/server.h"

namespace temper::tinker {

class ForwardBackward;

// What a request does, in slices: true when it is done. It resolves its future itself; what it
// throws fails the future.
struct Job {
  std::string future = {};
  std::function<bool()> step = {};
  int64_t bytes = 0;  // that it holds until it is done
  // Of a request of training passes: what makes them (ForwardBackward::step_together), before each
  // `step`. Null: `step` does all.
  std::function<ForwardBackward*()> passes = {};
};

// Not thread-safe.
class OrderedJobs {
 public:
  // Thrown where a request was refused, as its identical retries are.
  struct Refused {
    http::Answer answer;
  };

  // The number after the largest one so far, for requests that have none.
  int64_t next_number() const { return last_ + 1; }
  // The future of an identical request that came before; none: it is new. Throws Refused where that
  // one was refused, and DataError where another request had the number, or it was long ago, or it
  // is 65,536 or more ahead of the one whose turn it is.
  std::optional<std::string> known(int64_t seq, const std::string& digest) const;
  void add(int64_t seq, const std::string& digest, Job job, double now);
  // A request that is not done uses up its number, unless another one has it or known() would
  // throw.
  void refuse(int64_t seq, const std::string& digest, http::Answer answer);

  // The job whose turn it is; null: none is there.
  Job* current();
  void finish_current();
  // Takes all jobs out. After it none is taken in but for the numbers that follow.
  std::vector<Job> clear();
  // The jobs that wait for one that has not come for so many seconds: they are taken out, and what
  // is missing is not waited for any more.
  std::vector<Job> take_stuck(double now, double gap_seconds);

  // Takes out the job of a future, which uses up its number as if it were done; none: it has none.
  std::optional<Job> cancel(const std::string& future);

  bool is_next(int64_t seq) const { return seq == next_; }
  size_t waiting() const { return jobs_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Seen {
    std::string digest, future;
    std::optional<http::Answer> refusal;
    bool cancelled = false;
  };
  void note(int64_t seq, Seen seen);
  void advance();
  void number_is_used();

  int64_t next_ = 1, last_ = 0, bytes_ = 0;
  double idle_since_ = 0;         // when nothing could run although jobs waited
  std::map<int64_t, Job> jobs_;   // that are not done
  std::map<int64_t, Seen> seen_;  // lately, by number
};

}  // namespace temper::tinker
