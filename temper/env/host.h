// Interface to the open episodes of a run: in programs, tools, or environments in this process.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/env/environment.h"
#include "temper/process/process.h"

namespace temper::env {

struct Failure {
  enum class Kind { kTimedOut, kCrashed, kMalformed } kind;
  std::string detail;  // for messages
};

// The answer to a reset or a step. `failure` ends the episode; `tool_failures` do not: the policy
// reads them as the tools' answers.
struct Reply {
  int64_t episode = 0;
  Observation observation;
  std::optional<Failure> failure;
  std::vector<Failure> tool_failures;
  int64_t unread_calls =
      0;  // tool calls that could not be parsed, name an unknown tool or lack an argument
  // Lines that a program wrote without a request: counted as malformed, without other effect.
  int64_t unasked_lines = 0;
  std::string unasked;  // message about the first of these lines
};

// Used by one thread; no call blocks. The caller numbers the episodes; each is reset first, then
// stepped until an answer is `done`, and closed once.
class Host {
 public:
  virtual ~Host() = default;
  virtual void reset(int64_t episode, const Json& row) = 0;
  virtual void step(int64_t episode, const Turn& turn) = 0;
  virtual void close(int64_t episode) = 0;
  // Adds the file descriptors to poll(), and lowers `until` to the time of the next advance().
  virtual void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const = 0;
  // Processes input and timeouts, and adds the answers that have arrived.
  virtual void advance(std::vector<Reply>& replies) = 0;
};

}  // namespace temper::env
