// One process of a reward command or of an environment: a line of JSON in, a line out.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/process/limits.h"
#include "temper/process/process.h"
#include "temper/process/scratch.h"

namespace temper::process {

struct WorkerOptions {
  std::vector<std::string> command;
  double timeout_seconds = 10;        // time limit of an answer
  double start_timeout_seconds = 30;  // added to it for a process's first answer
  Limits limits;
  // A request may depend on those before it. A process that ends between two of them is then a
  // failure, where it else is replaced without a word.
  bool stateful = false;
  size_t longest_line = size_t{1} << 16;
};

// Nothing here blocks. The process's standard error is read, and its end kept for messages.
//
// Lines that the process writes without being asked must not be taken for answers. A request is
// therefore written without its last byte and line end at first, so that neither a line nor a JSON
// value is complete. Once the process has read that, it is back at reading, and what it wrote
// before is in the pipe: that is discarded and counted. Only then does it get the rest, and what it
// writes from there on is the answer. (A program that writes from several threads can tell its
// answers apart by the request's `id`.)
class Worker {
 public:
  explicit Worker(WorkerOptions options)
      : options_(std::move(options)), start_seconds_(options_.start_timeout_seconds) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool busy() const { return phase_ != Phase::kIdle; }
  // Begins a request (not empty, without a line end), starting the process if it does not run. A
  // line of which `answers` says false is another request's and is discarded. Throws RunError where
  // the process cannot be started.
  void ask(std::string line, std::function<bool(const std::string& line)> answers);

  // Sends a line that is not answered, behind the request that is being answered. Nothing where no
  // process runs.
  void tell(const std::string& line);

  // Adds what poll() is to wait for. It shall return at wake_time() at the latest.
  void add_awaited(std::vector<pollfd>& fds) const;
  Clock::time_point wake_time() const;

  // Moves bytes. The answer, once its line is whole: the worker is then free. Failures end the
  // process.
  struct Answer {
    enum class Kind { kLine, kEnded, kTimedOut, kGarbage } kind;
    std::string text;           // the line, or what went wrong
    int64_t unasked_lines = 0;  // discarded since the last answer
    std::string unasked;        // the first of them
    // kEnded: before the process had read the request; of a stateful one, between two of them
    bool between = false;
  };
  std::optional<Answer> advance();

  // Ends the process and all that it started, and removes its directory.
  void stop();

 private:
  enum class Phase { kIdle, kSending, kAnswering };  // kSending: all but the request's end

  void start();
  void restart_clock();
  double allowed_seconds() const;
  void write_request();
  void write_told();
  bool read_output();  // false at the end of the output
  bool is_ending();    // its output has ended, and the process may end in a moment
  void discard_line(std::string line);
  void discard_received();
  void end_request();
  std::optional<Answer> take_line();
  std::string ending();  // how the process ended, and the end of its standard error
  Answer give(Answer::Kind kind, std::string text);
  Answer fail(Answer::Kind kind, std::string text);

  const WorkerOptions options_;
  std::optional<ScratchDirectory> scratch_;
  std::optional<Process> process_;
  std::function<bool(const std::string&)> answers_;
  std::string request_, unsent_, told_, received_, error_output_, unasked_;
  int64_t unasked_lines_ = 0;
  Phase phase_ = Phase::kIdle;
  bool fresh_ = true;  // the process has not answered yet
  // time for the first answer of a new process; halved whenever one said nothing in it
  double start_seconds_;
  Clock::time_point asked_, deadline_;
  std::optional<Clock::time_point> closed_;  // when the process's output ended
};

}  // namespace temper::process
