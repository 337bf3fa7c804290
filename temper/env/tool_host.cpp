#include "temper/env/tool_host.h"

#include <algorithm>
#include <utility>

#include "temper/base/error.h"
#include "temper/env/messages.h"
#include "temper/env/tool_check.h"
#include "temper/text/unicode.h"

namespace temper::env {
namespace {

Json tool_message(const std::string& name, const std::string& content) {
  return {{"role", "tool"}, {"name", name}, {"content", repair_utf8(content)}};
}

}  // namespace

ToolHost::ToolHost(const EnvironmentSection& section, std::unique_ptr<Host> inner)
    : section_(section), inner_(std::move(inner)) {
  std::vector<ToolSection> shown;
  for (size_t i = 0; i < section.tools.size(); ++i) {
    const ToolSection& tool = section.tools[i];
    const std::string key = str("environment.tools[", i, "].mcp");
    if (tool.mcp.empty())
      add_tool(tool, nullptr, key);
    else
      for (const ToolSection& one :
           servers_.emplace_back(std::make_unique<McpServer>(tool.mcp, section, key))->tools())
        add_tool(one, servers_.back().get(), key);
  }
  for (const auto& tool : tools_) shown.push_back(tool->section);
  definitions_ = tool_definitions(shown);
}

void ToolHost::add_tool(ToolSection section, McpServer* server, const std::string& key) {
  check<ConfigError>(!find(section.name), key, ": two tools are called `", section.name, "`");
  tools_.push_back(std::make_unique<Tool>(std::move(section), server));
}

const ToolHost::Tool* ToolHost::find(const std::string& name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(),
                                  [&](const auto& tool) { return tool->section.name == name; });
  return found == tools_.end() ? nullptr : found->get();
}

void ToolHost::reset(int64_t episode, const Json& row) {
  episodes_[episode] = {};
  if (inner_) return inner_->reset(episode, row);
  Reply reply{.episode = episode};
  reply.observation.tools = definitions_;
  answered_.push_back(std::move(reply));
}

// Calls of tools that another environment knows are its own.
void ToolHost::step(int64_t episode, const Turn& turn) {
  Episode& e = episodes_.at(episode);
  e.stepped = true;
  e.turn = turn;
  e.answers.assign(turn.calls.size(), "");
  e.reply = {.episode = episode};
  e.unanswered = 0;
  for (size_t i = 0; i < turn.calls.size(); ++i) {
    const Tool* const tool = find(turn.calls[i].name);
    const std::string problem =
        tool ? find_call_problem(tool->section, turn.calls[i].arguments) : "";
    if (!problem.empty()) {
      ++e.reply.unread_calls;
      e.answers[i] = "error: " + problem;
    } else if (tool) {
      waiting_.push_back({episode, i, tool});
      ++e.unanswered;
    } else if (!inner_) {
      ++e.reply.unread_calls;
      e.answers[i] = "error: there is no tool `" + turn.calls[i].name + "`; there are ";
      for (const auto& known : tools_)
        e.answers[i] += (known == tools_.front() ? "" : ", ") + known->section.name;
    }
  }
  if (e.unanswered == 0) finish(episode);
}

void ToolHost::close(int64_t episode) {
  std::erase_if(waiting_, [&](const Call& c) { return c.episode == episode; });
  running_.remove_if([&](const Running& r) { return r.call.episode == episode; });
  std::erase_if(asked_, [&](const auto& asked) {
    if (asked.second.episode != episode) return false;
    asked.first.first->cancel(asked.first.second);
    return true;
  });
  episodes_.erase(episode);
  if (inner_) inner_->close(episode);
}

void ToolHost::add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const {
  for (const Running& running : running_) {
    running.run->add_awaited(fds);
    until = std::min(until, running.run->wake_time());
  }
  for (const auto& server : servers_) server->add_awaited(fds, until);
  if (!answered_.empty() || can_start()) until = process::Clock::now();
  if (inner_) inner_->add_awaited(fds, until);
}

bool ToolHost::can_start() const {
  return !waiting_.empty() &&
         running_.size() + asked_.size() < static_cast<size_t>(section_.workers);
}

void ToolHost::start_calls() {
  while (can_start()) {
    const Call call = waiting_.front();
    waiting_.pop_front();
    const auto& [section, server] = *call.tool;
    const Json& arguments = episodes_.at(call.episode).turn.calls[call.number].arguments;
    try {
      if (server)
        asked_[{server, server->call(section.name, arguments)}] = call;
      else
        running_.push_back({call, std::make_unique<ToolRun>(section, section_, arguments)});
    } catch (const RunError& e) {
      if (server) throw;
      answer(call, Failure{Failure::Kind::kCrashed, e.what()});
    }
  }
}

// A failed call is reported to the policy: a program may fail because of its arguments.
void ToolHost::answer(const Call& call, ToolRun::Result result) {
  Episode& e = episodes_.at(call.episode);
  if (auto* failure = std::get_if<Failure>(&result)) {
    e.answers[call.number] = "error: " + failure->detail;
    e.reply.tool_failures.push_back(std::move(*failure));
  } else {
    e.answers[call.number] = std::move(std::get<std::string>(result));
  }
  if (--e.unanswered == 0) finish(call.episode);
}

// All calls of a turn are answered.
void ToolHost::finish(int64_t episode) {
  Episode& e = episodes_.at(episode);
  if (inner_) return inner_->step(episode, e.turn);
  for (size_t i = 0; i < e.answers.size(); ++i)
    e.reply.observation.messages.push_back(tool_message(e.turn.calls[i].name, e.answers[i]));
  for (const std::string& problem : e.turn.problems)
    e.reply.observation.messages.push_back(
        tool_message("error", "error: this call cannot be read: " + problem));
  e.reply.observation.done = e.turn.calls.empty() && e.turn.problems.empty();
  answered_.push_back(std::move(e.reply));
}

void ToolHost::ask_servers() {
  for (const auto& server : servers_) {
    std::vector<McpServer::Answer> answers;
    server->advance(answers);
    for (McpServer::Answer& one : answers) {
      const auto asked = asked_.find({server.get(), one.number});
      if (asked == asked_.end()) continue;
      const Call call = asked->second;
      asked_.erase(asked);
      answer(call, std::move(one.result));
    }
  }
}

void ToolHost::advance(std::vector<Reply>& replies) {
  start_calls();
  ask_servers();
  for (auto running = running_.begin(); running != running_.end();) {
    std::optional<ToolRun::Result> result = running->run->advance();
    if (!result) {
      ++running;
      continue;
    }
    const Call call = running->call;
    running = running_.erase(running);
    answer(call, std::move(*result));
  }
  start_calls();
  if (inner_) {
    std::vector<Reply> from_inner;
    inner_->advance(from_inner);
    for (Reply& reply : from_inner)
      if (finish_inner(reply)) replies.push_back(std::move(reply));
  }
  for (Reply& reply : answered_) replies.push_back(std::move(reply));
  answered_.clear();
}

// Adds the tools' definitions to what answers a reset, and their answers to what answers a step.
// False: the episode was closed meanwhile.
bool ToolHost::finish_inner(Reply& reply) {
  const auto found = episodes_.find(reply.episode);
  if (found == episodes_.end()) return false;
  Episode& e = found->second;
  if (!e.stepped) {
    Json tools = definitions_;
    for (const Json& tool : reply.observation.tools) tools.push_back(tool);
    reply.observation.tools = std::move(tools);
    return true;
  }
  Json messages = Json::array();
  for (size_t i = 0; i < e.answers.size(); ++i)
    if (const std::string& name = e.turn.calls[i].name; find(name))
      messages.push_back(tool_message(name, e.answers[i]));
  for (const Json& message : reply.observation.messages) messages.push_back(message);
  reply.observation.messages = std::move(messages);
  reply.tool_failures = std::move(e.reply.tool_failures);
  reply.unread_calls += e.reply.unread_calls;
  return true;
}

}  // namespace temper::env
