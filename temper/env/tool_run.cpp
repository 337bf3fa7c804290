#include "temper/env/tool_run.h"

#include <chrono>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/process/pipes.h"

namespace temper::env {
namespace {

using namespace std::chrono_literals;
using process::Clock;

constexpr size_t kLongestOutput = size_t{1} << 20;
constexpr size_t kKeptErrors = 500;  // characters of the end of standard error that messages quote
// longest time between the end of a process's output and its own end
constexpr auto kEndingTakes = 200ms;
// time between checks whether a process has ended, where the system does not tell
constexpr auto kLook = 1ms;

process::ProcessOptions process_options(const ToolSection& tool, const EnvironmentSection& section,
                                        const std::string& scratch) {
  return {.command = tool.command,
          .environment = {"TMPDIR=" + scratch},
          .limits = section.limits.list(),
          .scratch = scratch,
          .sandbox = section.limits.sandbox};
}

}  // namespace

ToolRun::ToolRun(const ToolSection& tool, const EnvironmentSection& section, const Json& arguments)
    : name_(tool.name),
      timeout_seconds_(section.timeout_seconds),
      process_(process_options(tool, section, scratch_.path())),
      deadline_(Clock::now() + process::seconds(section.timeout_seconds)),
      unsent_(dump_json(arguments) + "\n") {}

void ToolRun::add_awaited(std::vector<pollfd>& fds) const {
  if (process_.input() >= 0) fds.push_back({process_.input(), POLLOUT, 0});
  if (process_.errors() >= 0) fds.push_back({process_.errors(), POLLIN, 0});
  fds.push_back({process_.exit(), POLLIN, 0});
  if (!closed_) fds.push_back({process_.output(), POLLIN, 0});
}

Clock::time_point ToolRun::wake_time() const {
  if (!closed_) return deadline_;
  const Clock::time_point last = *closed_ + kEndingTakes;
  return process_.exit() >= 0 ? last : std::min(last, Clock::now() + kLook);
}

Failure ToolRun::failure(Failure::Kind kind, const std::string& how) const {
  const std::string tail =
      errors_.size() > kKeptErrors ? errors_.substr(errors_.size() - kKeptErrors) : errors_;
  return {kind, "the tool " + name_ + " " + how + (tail.empty() ? "" : "; " + tail)};
}

// The answer is whole when its output ends, or the program does: what it has started may still hold
// the output.
std::optional<ToolRun::Result> ToolRun::advance() {
  const bool ended = process_.has_ended();  // before reading: what it wrote is there
  if (process_.input() >= 0 && (!process::write_some(process_.input(), unsent_) || unsent_.empty()))
    process_.close_input();
  if (process_.errors() >= 0) {
    if (!process::read_some(process_.errors(), errors_, kLongestOutput)) process_.close_errors();
    if (errors_.size() > 2 * kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  }
  if (!closed_ && !process::read_some(process_.output(), output_, kLongestOutput + 1))
    closed_ = Clock::now();
  if (output_.size() > kLongestOutput)
    return failure(Failure::Kind::kMalformed,
                   temper::str("wrote more than ", kLongestOutput, " bytes"));
  if (!ended && Clock::now() < wake_time()) return {};
  if (!ended && !closed_)
    return failure(Failure::Kind::kTimedOut,
                   temper::str("gave no answer within ", timeout_seconds_, " s"));
  const std::string how = process_.ending();
  if (how != "exited with status 0" && how != "closed its output")
    return failure(Failure::Kind::kCrashed, how);
  if (!output_.empty() && output_.back() == '\n') output_.pop_back();
  return std::move(output_);
}

}  // namespace temper::env
