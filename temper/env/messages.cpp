#include "temper/env/messages.h"

#include <cmath>

#include "temper/base/error.h"
#include "temper/env/config.h"

namespace temper::env {
namespace {

constexpr size_t kQuoted = 200;          // of an answer, in messages
constexpr double kLargestReward = 1e30;  // its sums and squares are finite too

// 7, 7.0 and "7" are the same.
bool is_episode(const Json& id, int64_t episode) {
  return id.is_number() ? id == Json(episode)
                        : id.is_string() && id == Json(std::to_string(episode));
}

// Empty: these are messages.
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

// Reads it, or says what is wrong.
std::string read(const Json& answer, bool reset, Observation& out) {
  if (!answer.is_object()) return "it is not a JSON object";
  const bool has_messages = answer.contains("messages") && !answer["messages"].is_null();
  if (reset && !has_messages) return "`messages` is missing";
  if (has_messages) {
    if (std::string problem = problem_of_messages(answer["messages"]); !problem.empty())
      return problem;
    out.messages = answer["messages"];
  }
  if (const auto tools = answer.find("tools"); tools != answer.end() && !tools->is_null()) {
    const bool list = tools->is_array() && std::all_of(tools->begin(), tools->end(),
                                                       [](auto& t) { return t.is_object(); });
    if (!list) return "`tools` is not a list of functions";
    if (!tools->empty()) out.tools = *tools;
  }
  if (const auto reward = answer.find("reward"); reward != answer.end() && !reward->is_null()) {
    if (!reward->is_number()) return "`reward` is not a number";
    out.reward = reward->get<double>();
    if (!std::isfinite(out.reward) || std::abs(out.reward) > kLargestReward)
      return "`reward` is not a finite number of at most 1e30";
  }
  const auto done = answer.find("done");
  if (done != answer.end() && !done->is_boolean()) return "`done` is neither true nor false";
  if (!reset && done == answer.end()) return "`done` is missing";
  out.done = done != answer.end() && done->get<bool>();
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

bool may_answer(const std::string& line, int64_t episode) {
  if (line.find("\"episode\"") == std::string::npos) return true;
  try {
    const Json answer = parse_json(line, "answer");
    const auto found = answer.is_object() ? answer.find("episode") : answer.end();
    return found == answer.end() || is_episode(*found, episode);
  } catch (const DataError&) {
    return true;
  }
}

std::variant<Observation, Failure> read_answer(const std::string& line, bool reset,
                                               const std::string& program) {
  Observation observation;
  std::string problem;
  try {
    problem = read(parse_json(line, "answer"), reset, observation);
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
                     {{"name", tool.name},
                      {"description", tool.description},
                      {"parameters", parse_json(tool.parameters.json, "parameters")}}}});
  return list;
}

}  // namespace temper::env
