// Tools of a server of the Model Context Protocol, a program that is started once and speaks
// JSON-RPC 2.0 over its standard streams, a message a line (modelcontextprotocol.io, 2025-06-18).
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/process/process.h"
#include "temper/process/scratch.h"

namespace temper::env {

class McpServer {
 public:
  // Starts the program and asks it for its tools, for at most start_timeout_seconds and
  // timeout_seconds of the section together. Throws ConfigError that begins with `key` where it
  // does not answer as the protocol says, or has no tool.
  McpServer(const std::vector<std::string>& command, const EnvironmentSection& section,
            std::string key);

  const std::vector<ToolSection>& tools() const { return tools_; }

  // Sends a call, whose number it gives; several may be unanswered.
  int64_t call(const std::string& tool, const Json& arguments);
  // The call's answer is not awaited any more.
  void cancel(int64_t number);

  void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const;
  // The text of the tool's answer, or how the call failed.
  struct Answer {
    int64_t number;
    std::variant<std::string, Failure> result;
  };
  // Moves bytes and adds the answers that are there. Throws RunError where the server has ended or
  // speaks no JSON-RPC: its state is gone, and with it what its tools answered before.
  void advance(std::vector<Answer>& answers);

 private:
  struct Call {
    std::string tool;
    process::Clock::time_point deadline;
  };

  int64_t request(const char* method, Json parameters);
  void notify(const char* method, Json parameters);
  void send(const Json& message);
  void move_bytes();
  std::vector<Json> take_messages();
  bool answered_as_server(const Json& message);
  Json await(const char* method, Json parameters, process::Clock::time_point until);
  void list_tools(process::Clock::time_point until);
  [[noreturn]] void fail(const std::string& how) const;
  // How it ended, once its output is closed: for a while it may not have.
  std::string ending() const;

  const std::string key_, program_;
  const double timeout_seconds_;
  process::ScratchDirectory scratch_;
  process::Process process_;
  std::vector<ToolSection> tools_;
  std::map<int64_t, Call> calls_;
  int64_t next_ = 1;
  bool open_ = true;  // it may still write
  std::string unsent_, received_, errors_;
};

}  // namespace temper::env
