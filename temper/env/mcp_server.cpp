#include "temper/env/mcp_server.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/env/tool_check.h"
#include "temper/process/pipes.h"

namespace temper::env {
namespace {

using process::Clock;

constexpr const char* kProtocol = "2025-06-18";
constexpr size_t kLongestMessage = size_t{4} << 20, kMostTools = 1024, kMostPages = 64;
constexpr size_t kMostUnsent = size_t{64} << 20;
constexpr size_t kKeptStderr = 500;  // characters of the end of standard error that messages quote
constexpr size_t kQuotedStart = 200;
constexpr int kNoSuchMethod = -32601;  // JSON-RPC
constexpr auto kTimeToEnd = std::chrono::seconds(1);

std::string quoted_start(const std::string& text) {
  return "`" + text.substr(0, kQuotedStart) + "`";
}

// What the policy reads: the texts, one after the other, and the names of what is no text.
std::string text_of_content(const Json& result) {
  std::string text;
  const Json* content = find_field(result, "content");
  if (content && content->is_array())
    for (const Json& part : *content) {
      const Json* type = find_field(part, "type");
      const Json* words = find_field(part, "text");
      if (!text.empty()) text += '\n';
      if (words && words->is_string())
        text += words->get<std::string>();
      else
        text += str("[", type && type->is_string() ? type->get<std::string>() : "content", "]");
    }
  if (text.empty())
    if (const Json* structured = find_field(result, "structuredContent"); structured)
      text = dump_json(*structured);
  const Json* is_error = find_field(result, "isError");
  return is_error && *is_error == true ? "error: " + text : text;
}

std::string message_of(const Json& error) {
  const Json* message = find_field(error, "message");
  return message && message->is_string() ? message->get<std::string>() : dump_json(error);
}

ToolSection section_of(const Json& tool, const std::string& key) {
  ToolSection section;
  const Json *name = find_field(tool, "name"), *description = find_field(tool, "description"),
             *parameters = find_field(tool, "inputSchema");
  check<ConfigError>(name && name->is_string(), key,
                     ": the server lists a tool without a name: ", quoted_start(dump_json(tool)));
  section.name = name->get<std::string>();
  if (description && description->is_string()) section.description = *description;
  if (parameters && !parameters->is_null()) section.parameters.json = dump_json(*parameters);
  const std::string problem = find_tool_problem(section, str(key, ": tool ", section.name));
  check<ConfigError>(problem.empty(), problem);
  return section;
}

}  // namespace

McpServer::McpServer(const std::vector<std::string>& command, const EnvironmentSection& section,
                     std::string key)
    : key_(std::move(key)),
      program_(command[0]),
      timeout_seconds_(section.timeout_seconds),
      process_({.command = command,
                .environment = {"TMPDIR=" + scratch_.path()},
                .limits = section.limits.list(),
                .scratch = scratch_.path(),
                .sandbox = section.limits.sandbox}) {
  const Clock::time_point until =
      Clock::now() + process::seconds(section.start_timeout_seconds + section.timeout_seconds);
  try {
    const Json answer = await("initialize",
                              {{"protocolVersion", kProtocol},
                               {"capabilities", Json::object()},
                               {"clientInfo", {{"name", "temper"}, {"version", "1"}}}},
                              until);
    check<RunError>(answer.is_object() && answer.contains("protocolVersion"), key_, ": ", program_,
                    " answers `initialize` without a protocol version; expected a server of the "
                    "Model Context Protocol");
    notify("notifications/initialized", Json::object());
    list_tools(until);
  } catch (const RunError& e) {
    throw ConfigError(e.what());
  }
  check<ConfigError>(!tools_.empty(), key_, ": ", program_, " lists no tool");
}

void McpServer::list_tools(Clock::time_point until) {
  Json parameters = Json::object();
  for (size_t page = 0;; ++page) {
    const Json answer = await("tools/list", parameters, until);
    const Json* tools = find_field(answer, "tools");
    check<RunError>(
        tools && tools->is_array(), key_, ": ", program_,
        " answers `tools/list` without a list of tools: ", quoted_start(dump_json(answer)));
    for (const Json& tool : *tools) tools_.push_back(section_of(tool, key_));
    check<RunError>(tools_.size() <= kMostTools, key_, ": ", program_, " lists more than ",
                    kMostTools, " tools");
    const Json* next = find_field(answer, "nextCursor");
    if (!next || !next->is_string()) return;
    check<RunError>(page < kMostPages, key_, ": ", program_, " lists tools on more than ",
                    kMostPages, " pages");
    parameters["cursor"] = *next;
  }
}

void McpServer::send(const Json& message) {
  unsent_ += dump_json(message) + "\n";
  if (unsent_.size() > kMostUnsent) fail("does not read what it is sent");
}

int64_t McpServer::request(const char* method, Json parameters) {
  const int64_t number = next_++;
  send({{"jsonrpc", "2.0"}, {"id", number}, {"method", method}, {"params", std::move(parameters)}});
  return number;
}

void McpServer::notify(const char* method, Json parameters) {
  send({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(parameters)}});
}

int64_t McpServer::call(const std::string& tool, const Json& arguments) {
  const int64_t number = request("tools/call", {{"name", tool}, {"arguments", arguments}});
  calls_[number] = {tool, Clock::now() + process::seconds(timeout_seconds_)};
  return number;
}

void McpServer::cancel(int64_t number) {
  if (calls_.erase(number) > 0)
    notify("notifications/cancelled", {{"requestId", number}, {"reason", "not awaited"}});
}

void McpServer::fail(const std::string& how) const {
  std::string tail =
      errors_.size() > kKeptStderr ? errors_.substr(errors_.size() - kKeptStderr) : errors_;
  tail.erase(tail.find_last_not_of(" \t\r\n") + 1);
  throw RunError(
      temper::str(key_, ": the server ", program_, " ", how, tail.empty() ? "" : "; " + tail));
}

void McpServer::move_bytes() {
  if (!unsent_.empty() && process_.input() >= 0 && !process::write_some(process_.input(), unsent_))
    unsent_.clear();  // it reads no more; that it ends is seen below
  if (process_.errors() >= 0) {
    if (!process::read_some(process_.errors(), errors_, kLongestMessage)) process_.close_errors();
    if (errors_.size() > 2 * kKeptStderr) errors_.erase(0, errors_.size() - kKeptStderr);
  }
  if (open_) open_ = process::read_some(process_.output(), received_, kLongestMessage + 1);
}

std::vector<Json> McpServer::take_messages() {
  std::vector<Json> messages;
  size_t begin = 0;
  for (size_t end; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = received_.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      Json message = parse_json(line, "message");
      if (message.is_object())
        messages.push_back(std::move(message));
      else if (message.is_array())  // a batch, of earlier versions
        for (Json& one : message) messages.push_back(std::move(one));
    } catch (const DataError&) {
      fail("writes a line that is no JSON to its standard output: " + quoted_start(line));
    }
  }
  received_.erase(0, begin);
  if (received_.size() > kLongestMessage)
    fail(temper::str("writes a message of more than ", kLongestMessage, " bytes"));
  return messages;
}

// Requests and notifications of the server. What a client may offer (roots, sampling) is not.
bool McpServer::answered_as_server(const Json& message) {
  const Json* method = find_field(message, "method");
  if (!method) return false;
  const Json* id = find_field(message, "id");
  if (!id) return true;
  Json answer{{"jsonrpc", "2.0"}, {"id", *id}};
  if (*method == "ping")
    answer["result"] = Json::object();
  else
    answer["error"] = {{"code", kNoSuchMethod}, {"message", "not offered by this client"}};
  send(answer);
  return true;
}

Json McpServer::await(const char* method, Json parameters, Clock::time_point until) {
  const int64_t number = request(method, std::move(parameters));
  while (true) {
    move_bytes();
    for (const Json& message : take_messages()) {
      if (answered_as_server(message)) continue;
      const Json *id = find_field(message, "id"), *error = find_field(message, "error"),
                 *result = find_field(message, "result");
      if (!id || *id != number) continue;
      if (error) fail(temper::str("answers `", method, "` with the error: ", message_of(*error)));
      return result ? *result : Json();
    }
    if (!open_) fail(ending() + " before it answered `" + method + "`");
    if (Clock::now() >= until)
      fail(temper::str("did not answer `", method,
                       "` in time (environment.start_timeout_seconds and timeout_seconds)"));
    std::vector<pollfd> fds;
    Clock::time_point wake = until;
    add_awaited(fds, wake);
    process::wait_for(fds, wake);
  }
}

void McpServer::add_awaited(std::vector<pollfd>& fds, Clock::time_point& until) const {
  if (!unsent_.empty() && process_.input() >= 0) fds.push_back({process_.input(), POLLOUT, 0});
  if (process_.errors() >= 0) fds.push_back({process_.errors(), POLLIN, 0});
  if (open_) fds.push_back({process_.output(), POLLIN, 0});
  for (const auto& [number, call] : calls_) until = std::min(until, call.deadline);
  if (!open_) until = Clock::now();
}

std::string McpServer::ending() const {
  const Clock::time_point last = Clock::now() + kTimeToEnd;
  while (!process_.has_ended() && Clock::now() < last) {
    std::vector<pollfd> fds{{process_.exit(), POLLIN, 0}};
    process::wait_for(fds, std::min(last, Clock::now() + std::chrono::milliseconds(10)));
  }
  return process_.ending();
}

void McpServer::advance(std::vector<Answer>& answers) {
  move_bytes();
  for (const Json& message : take_messages()) {
    if (answered_as_server(message)) continue;
    const Json* id = find_field(message, "id");
    if (!id || !id->is_number_integer()) continue;
    const auto call = calls_.find(id->get<int64_t>());
    if (call == calls_.end()) continue;  // cancelled
    const Json *error = find_field(message, "error"), *result = find_field(message, "result");
    answers.push_back({call->first, error    ? "error: " + message_of(*error)
                                    : result ? text_of_content(*result)
                                             : std::string()});
    calls_.erase(call);
  }
  if (!open_) fail(ending());
  std::vector<int64_t> late;
  for (const auto& [number, call] : calls_)
    if (Clock::now() >= call.deadline) late.push_back(number);
  for (const int64_t number : late) {
    answers.push_back(
        {number, Failure{Failure::Kind::kTimedOut,
                         temper::str("the tool ", calls_.at(number).tool, " gave no answer within ",
                                     timeout_seconds_, " s")}});
    cancel(number);
  }
}

}  // namespace temper::env
