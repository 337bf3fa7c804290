// What holds the open episodes of a run: programs, tools, or environments in this process.
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

// The answer to a reset or a step. `failure` of an environment ends its episode; `tool_failures`
// were told to the policy.
struct Reply {
  int64_t episode = 0;
  Observation observation;
  std::optional<Failure> failure;
  std::vector<Failure> tool_failures;
  int64_t unread_calls = 0;  // calls of tools that there are not
  // Lines that a program wrote unasked. They cost nothing and count as malformed.
  int64_t unasked_lines = 0;
};

// Used by one thread. Nothing blocks. Episodes have numbers of the caller's; each is reset first,
// then stepped while its answers are not `done`, and closed once.
class Host {
 public:
  virtual ~Host() = default;
  virtual void reset(int64_t episode, const Json& row) = 0;
  virtual void step(int64_t episode, const Turn& turn) = 0;
  virtual void close(int64_t episode) = 0;
  // Adds what poll() is to wait for, and when advance() is to be called at the latest.
  virtual void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const = 0;
  // Moves on, and adds the answers that have come.
  virtual void advance(std::vector<Reply>& replies) = 0;
};

}  // namespace temper::env
