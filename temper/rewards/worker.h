// One process of a reward command: a line of JSON in, a line out.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/rewards/config.h"

namespace temper::rewards {

using Clock = std::chrono::steady_clock;

// A child in a process group of its own, so that whatever it forks ends with it, and in an empty
// directory of its own. Nothing here blocks. Its standard error is read and its end kept for
// messages.
class Worker {
 public:
  explicit Worker(const RewardSection& options)
      : options_(options), start_seconds_(options.start_timeout_seconds) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool busy() const { return busy_; }
  // Begins a request, starting the process if it does not run. Throws RunError where it cannot be
  // started. False: the process has said what nobody asked for, so that its next line might be the
  // answer to anything; it is ended, and nothing was asked.
  bool ask(std::string line);

  // What poll() is to wait for. A descriptor below 0 is ignored.
  int input() const { return unsent_.empty() ? -1 : input_; }
  int output() const { return output_; }
  int errors() const { return errors_; }
  Clock::time_point deadline() const { return deadline_; }

  // Moves bytes. The answer, once its line is whole: the worker is then free. Failures end the
  // process.
  struct Answer {
    enum class Kind { kLine, kEnded, kTimedOut, kGarbage } kind;
    std::string text;  // the line, or what went wrong
  };
  std::optional<Answer> advance();

  // Ends the process and all that it started, and removes its directory.
  void stop();

 private:
  void start();
  std::string ending();  // how the process ended, and the end of its standard error
  Answer fail(Answer::Kind kind, std::string text);

  const RewardSection& options_;
  pid_t process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string directory_, unsent_, received_, complaints_;
  bool busy_ = false, fresh_ = true;
  double start_seconds_;  // a new process's; halved whenever one said nothing in it
  Clock::time_point deadline_;
};

}  // namespace temper::rewards
