// One call of a tool: a program is started, reads a line, writes its answer and ends.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/process/process.h"
#include "temper/process/scratch.h"

namespace temper::env {

class ToolRun {
 public:
  // Starts the tool's program in a process group and with a TMPDIR of its own, and gives it the
  // arguments. Throws RunError where it cannot be started.
  ToolRun(const ToolSection& tool, const EnvironmentSection& section, const Json& arguments);

  void add_awaited(std::vector<pollfd>& fds) const;
  // When advance() has something to do at the latest.
  process::Clock::time_point wake_time() const;
  // The program's output without the last line end, once it has ended; or how it failed.
  using Result = std::variant<std::string, Failure>;
  std::optional<Result> advance();

 private:
  Failure failure(Failure::Kind kind, const std::string& how) const;

  std::string name_;
  double timeout_seconds_;
  process::ScratchDirectory scratch_;
  process::Process process_;
  process::Clock::time_point deadline_;
  std::optional<process::Clock::time_point> closed_;  // when the program's output ended
  std::string unsent_, output_, errors_;
};

}  // namespace temper::env
