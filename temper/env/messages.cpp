#include "temper/env/messages.h"

#include <vector>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/env/config.h"
#include "temper/rewards/reward.h"

namespace temper::env {
namespace {

constexpr size_t kQuoted = 200;  // characters of an answer that a message quotes

// 7, 7.0 and "7" are the same.
bool is_episode(const Json& id, int64_t episode) {
  return id.is_number() ? id == Json(episode)
                        : id.is_string() && id == Json(std::to_string(episode));
}

// The problem with a list of messages; empty: none.
std::string problem_of_messages(const Json& messages) {
  if (!messages.is_array()) return "`messages` is not a list";
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return "a message is not an object with a `role`";
    const auto content = message.find("content");
    if (content == message.end() || !(content->is_string() || content->is_array()))
      return "a message has no `content`";
  }
  return {};
}

// A program may answer with more than is read, such as `info`; but not with what looks like a field
// that is read and is none: an episode without its reward is worse than an error.
std::string problem_of_fields(const Json& answer) {
  const auto plain = [](std::string name) {
    name = ascii_lower(name);
    if (name.ends_with("s")) name.pop_back();
    return name;
  };
  for (const auto& [name, value] : answer.items())
    for (const char* const known : {"messages", "tools", "reward", "done"})
      if (name != known && plain(name) == plain(known))
        return "unknown field `" + name.substr(0, kQuoted) + "`; did you mean `" + known + "`?";
  return {};
}

// {type: function, function: {name, ..}}, or {name, ..}.
bool is_tool(const Json& tool) {
  if (!tool.is_object()) return false;
  const Json function = tool.value("function", tool);
  return function.is_object() && function.contains("name") && function["name"].is_string();
}

std::string read_tools(const Json& tools, bool reset, Observation& out) {
  if (!tools.is_array()) return "`tools` is not a list of functions";
  for (const Json& tool : tools)
    if (!is_tool(tool))
      return "`tools` has " + dump_json(tool).substr(0, kQuoted) +
             R"(, expected {"type": "function", "function": {"name": ..}})";
  if (!reset && !tools.empty()) return "`tools` are told at a reset";
  if (!tools.empty()) out.tools = tools;
  return {};
}

std::string read_reward(const Json& reward, bool reset, Observation& out) {
  if (!reward.is_number()) return "`reward` is not a number";
  out.reward = reward.get<double>();
  out.rewarded = true;
  if (!rewards::is_reward(out.reward)) return "`reward` is not a finite number of at most 1e30";
  return reset && out.reward != 0 ? "`reward` of a reset is not 0; steps have rewards" : "";
}

// Reads an answer into `out`, or returns the problem with it.
std::string read(const Json& answer, bool reset, Observation& out) {
  if (!answer.is_object()) return "it is not a JSON object";
  std::string problem = problem_of_fields(answer);
  const auto field = [&](const char* name, const auto& take) {
    const auto found = answer.find(name);
    if (problem.empty() && found != answer.end() && !found->is_null()) problem = take(*found);
    return found != answer.end() && !found->is_null();
  };
  const bool has_messages = field("messages", [&](const Json& messages) {
    out.messages = messages;
    return problem_of_messages(messages);
  });
  field("tools", [&](const Json& tools) { return read_tools(tools, reset, out); });
  field("reward", [&](const Json& reward) { return read_reward(reward, reset, out); });
  const auto done = answer.find("done");
  if (!problem.empty()) return problem;
  if (done != answer.end() && !done->is_boolean()) return "`done` is neither true nor false";
  if (!reset && done == answer.end()) return "`done` is missing";
  out.done = done != answer.end() && done->get<bool>();
  if (reset && out.done) return "`done` is true at a reset; only steps end an episode";
  // The last answer of an episode needs no messages.
  if (!has_messages && !out.done) return "`messages` is missing";
  return {};
}

}  // namespace

std::string reset_request(int64_t episode, const Json& row) {
  return dump_json(Json{{"episode", episode}, {"type", "reset"}, {"row", row}});
}

std::string step_request(int64_t episode, const Turn& turn) {
  Json calls = Json::array();
  for (const ToolCall& call : turn.calls)
    calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  Json request = {{"episode", episode},
                  {"type", "step"},
                  {"completion", turn.completion},
                  {"tool_calls", std::move(calls)}};
  if (!turn.problems.empty()) request["tool_call_errors"] = turn.problems;
  return dump_json(request);
}

std::string close_request(int64_t episode) {
  return dump_json(Json{{"episode", episode}, {"type", "close"}});
}

bool answers_late(const std::string& line, std::set<int64_t>& late) {
  if (late.empty() || line.find("\"episode\"") == std::string::npos) return false;
  try {
    const Json answer = parse_json(line, "answer");
    if (!answer.is_object() || !answer.contains("episode")) return false;
    return std::erase_if(late, [&](int64_t e) { return is_episode(answer["episode"], e); }) > 0;
  } catch (const DataError&) {
    return false;
  }
}

std::variant<Observation, Failure> read_answer(const std::string& line, int64_t episode, bool reset,
                                               const std::string& program) {
  Observation observation;
  std::string problem;
  try {
    const Json answer = parse_json(line, "answer");
    if (answer.is_object() && answer.contains("episode") && !is_episode(answer["episode"], episode))
      return Failure{Failure::Kind::kMalformed,
                     str(program, " answered for episode ", dump_json(answer["episode"]),
                         ", expected ", episode, "; answers come in the order of the requests")};
    problem = read(answer, reset, observation);
  } catch (const DataError&) {
    problem = "it is not JSON";
  }
  if (problem.empty()) return observation;
  return Failure{Failure::Kind::kMalformed,
                 str(program, " answered a ", reset ? "reset" : "step", " with `",
                     line.substr(0, kQuoted), "`: ", problem, "; expected ",
                     reset ? R"({"messages": [..], "tools": [..] where there are any})"
                           : R"({"messages": [..], "reward": number, "done": true or false})")};
}

Json tool_definitions(const std::vector<ToolSection>& tools) {
  Json list = Json::array();
  for (const ToolSection& tool : tools)
    list.push_back({{"type", "function"},
                    {"function",
                     {{"name", tool.mcp.empty() ? tool.name : tool.mcp[0]},
                      {"description", tool.description},
                      {"parameters", parse_json(tool.parameters.json, "parameters")}}}});
  return list;
}

}  // namespace temper::env
