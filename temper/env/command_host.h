// Any program as an environment (`environment.command`): it is started as one or more long-lived
// workers, each holds several episodes, told apart by `episode`. A line of JSON in, a line out:
//   {"episode": 7, "type": "reset", "row": {..}}
//       -> {"messages": [..], "tools": [..] where there are any}
//   {"episode": 7, "type": "step", "completion": "..", "tool_calls": [{"name", "arguments"}]}
//       -> {"messages": [..], "reward": number, "done": true or false}
//   {"episode": 7, "type": "close"}, which is not answered.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/process/worker.h"

namespace temper::env {

// An episode goes to the worker with the fewest open ones, and stays there. A worker has one
// request at a time. One that hangs, ends or answers nonsense costs the episode that it was asked
// for; where it has to be replaced, its other episodes are repeated in the new process from their
// resets on, and go on where they were if all its answers are the same again, else they are lost.
class CommandHost : public Host {
 public:
  // The program is known to be there (find_problem).
  explicit CommandHost(const EnvironmentSection& section);

  void reset(int64_t episode, const Json& row) override;
  void step(int64_t episode, const Turn& turn) override;
  void close(int64_t episode) override;
  void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const override;
  void advance(std::vector<Reply>& replies) override;

 private:
  struct Episode {
    size_t slot = 0;
    std::vector<std::string> asked, answers;  // requests that were answered, and their answers
    bool known = false;                       // the running process knows the episode
    int losses = 0;  // processes that ended before they read the episode's request
  };
  struct Request {
    int64_t episode;
    std::string line;
    bool repeated = false;
    // index in the episode's `answers` of this request's answer, which a repeated one must equal
    size_t number = 0;
  };
  struct Slot {
    explicit Slot(const process::WorkerOptions& options) : worker(options) {}
    process::Worker worker;
    std::deque<Request> waiting;
    std::optional<Request> current;
    std::set<int64_t> late;  // episodes whose request timed out: an answer is discarded
    int64_t open = 0;
  };
  static constexpr size_t kLongestAnswer = size_t{4} << 20;

  void ask(int64_t episode, std::string line);
  bool dispatch(Slot& slot, std::vector<Reply>& replies);
  void answered(Slot& slot, const process::Worker::Answer& answer, std::vector<Reply>& replies);
  void ended(Slot& slot, const process::Worker::Answer& answer, std::vector<Reply>& replies);
  std::string what_was_unasked(const process::Worker::Answer& answer) const;
  void forget(Slot& slot, int64_t episode);
  void lose(int64_t episode, Failure failure, std::vector<Reply>& replies);

  const std::string program_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::map<int64_t, Episode> episodes_;
};

}  // namespace temper::env
