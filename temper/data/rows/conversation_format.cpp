#include "temper/data/rows/conversation_format.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "temper/base/error.h"

namespace temper::data {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kSpeakers = {{
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"model", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"tool_response", "tool"},
    {"function", "tool"},
    {"ipython", "tool"},
    {"developer", "developer"},
    {"function_response", "tool"},
}};

std::string_view role_of(const Json& speaker, size_t number, const std::string& where) {
  if (speaker.is_string())
    for (const auto& [name, role] : kSpeakers)
      if (speaker.get_ref<const std::string&>() == name) return role;
  throw DataError(str(where, ": conversations: message ", number, " is from ", dump_json(speaker),
                      "; expected human, gpt, system or tool"));
}

Json message_of(const Json& turn, size_t number, const std::string& where) {
  if (turn.is_object() && turn.contains("role") && turn.contains("content")) return turn;
  check<DataError>(turn.is_object() && turn.contains("from") && turn.contains("value"), where,
                   ": conversations: message ", number, " is ", dump_json(turn).substr(0, 80),
                   "; expected {\"from\": .., \"value\": ..}");
  Json message = {{"role", role_of(turn["from"], number, where)}, {"content", turn["value"]}};
  for (const auto& [name, value] : turn.items())
    if (name != "from" && name != "value") message[name] = value;
  return message;
}

// A field that is text, or missing; null counts as missing.
std::string optional_text(const Json& row, const char* field, const std::string& where) {
  if (!row.contains(field) || row[field].is_null()) return {};
  check<DataError>(row[field].is_string(), where, ": `", field, "` must be text");
  return row[field].get<std::string>();
}

Json message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// The words of Stanford Alpaca (github.com/tatsu-lab/stanford_alpaca, train.py).
std::string alpaca_prompt(const std::string& instruction, const std::string& input) {
  std::string out = "Below is an instruction that describes a task";
  out += input.empty() ? ". " : ", paired with an input that provides further context. ";
  out += "Write a response that appropriately completes the request.\n\n### Instruction:\n";
  out += instruction;
  if (!input.empty()) out += "\n\n### Input:\n" + input;
  return out + "\n\n### Response:";
}

Json history_of(const Json& row, const std::string& where) {
  Json messages = Json::array();
  if (!row.contains("history") || row["history"].is_null()) return messages;
  check<DataError>(row["history"].is_array(), where,
                   ": `history` must be a list of [question, answer]");
  for (const Json& pair : row["history"]) {
    check<DataError>(
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string(), where,
        ": `history` must be a list of [question, answer], both text");
    messages.push_back(message("user", pair[0]));
    messages.push_back(message("assistant", pair[1]));
  }
  return messages;
}

}  // namespace

Json from_sharegpt(Json row, const std::string& where) {
  check<DataError>(row.contains("conversations") && row["conversations"].is_array(), where,
                   ": a ShareGPT row needs `conversations`, a list of {\"from\": .., \"value\": "
                   "..}");
  Json messages = Json::array();
  const std::string system = optional_text(row, "system", where);
  if (!system.empty()) messages.push_back(message("system", system));
  const Json& turns = row["conversations"];
  for (size_t i = 0; i < turns.size(); ++i) messages.push_back(message_of(turns[i], i + 1, where));
  row["messages"] = std::move(messages);
  return row;
}

Json from_alpaca(Json row, bool as_messages, const std::string& where) {
  const std::string instruction = optional_text(row, "instruction", where),
                    input = optional_text(row, "input", where),
                    output = optional_text(row, "output", where),
                    system = optional_text(row, "system", where);
  check<DataError>(!instruction.empty(), where,
                   ": an Alpaca row needs `instruction`, and usually `output`");
  const Json history = history_of(row, where);
  if (!as_messages) {
    check<DataError>(history.empty() && system.empty(), where,
                     ": `history` and `system` need a chat template, and the model directory has "
                     "none");
    row["prompt"] = alpaca_prompt(instruction, input);
    if (row.contains("output")) row["completion"] = output;
    return row;
  }
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(message("system", system));
  for (const Json& m : history) messages.push_back(m);
  messages.push_back(message("user", input.empty() ? instruction : instruction + "\n" + input));
  if (row.contains("output")) messages.push_back(message("assistant", output));
  row["messages"] = std::move(messages);
  return row;
}

}  // namespace temper::data
