#include "temper/data/rows/row_formats.h"

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/data/rows/conversation_format.h"
#include "temper/data/rows/row_fields.h"

namespace temper::data {
namespace {

// A conversation, and the row's fields that do not belong to it.
struct Conversation {
  Json messages = Json::array();
  Json others = Json::object();
};

void remove(Json& row, std::initializer_list<const char*> fields) {
  for (const char* field : fields) row.erase(field);
}

// Text is a message of `role`; messages are themselves.
void append_side(const Json& side, const char* role, const char* field, const std::string& where,
                 Json& messages) {
  check<DataError>(side.is_string() || side.is_array(), where, ": `", field,
                   "` must be text or messages");
  if (side.is_string())
    messages.push_back({{"role", role}, {"content", side}});
  else
    for (const Json& turn : side) messages.push_back(turn);
}

Conversation read_conversation(Json row, const std::string& where) {
  rename_columns(row, {}, where);  // a conversation may be its JSON text
  Conversation found;
  if (row.contains("messages")) {
    check<DataError>(row["messages"].is_array(), where, ": `messages` must be a list of messages");
    found.messages = row["messages"];
    remove(row, {"messages"});
  } else if (row.contains("conversations")) {
    found.messages = from_sharegpt(row, where)["messages"];
    remove(row, {"conversations", "system"});
  } else if (row.contains("instruction")) {
    found.messages = from_alpaca(row, true, where)["messages"];
    remove(row, {"instruction", "input", "output", "system", "history"});
  } else {
    check<DataError>(row.contains("prompt"), where, ": the row has ", field_names(row),
                     "; expected messages, conversations, instruction, or prompt and completion");
    append_side(row["prompt"], "user", "prompt", where, found.messages);
    if (row.contains("completion"))
      append_side(row["completion"], "assistant", "completion", where, found.messages);
    remove(row, {"prompt", "completion"});
  }
  for (const Json& turn : found.messages)
    check<DataError>(turn.is_object() && turn.contains("role") && turn["role"].is_string(), where,
                     ": a message is ", dump_json(turn).substr(0, 80),
                     ", expected {role, content}");
  found.others = std::move(row);
  return found;
}

bool is_of(const Json& turn, const char* role) { return turn["role"] == role; }

std::string text_of_turn(const Json& turn, const std::string& where) {
  check<DataError>(turn.contains("content") && turn["content"].is_string(), where,
                   ": a message of ", dump_json(turn["role"]), " has no text as `content`");
  return turn["content"].get<std::string>();
}

Json written_sharegpt(const Json& messages) {
  Json out = Json::object();
  Json turns = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& turn = messages[i];
    if (i == 0 && is_of(turn, "system") && turn.contains("content")) {
      out["system"] = turn["content"];
      continue;
    }
    Json item{{"from", is_of(turn, "user")        ? Json("human")
                       : is_of(turn, "assistant") ? Json("gpt")
                                                  : turn["role"]},
              {"value", turn.contains("content") ? turn["content"] : Json("")}};
    for (const auto& [name, value] : turn.items())
      if (name != "role" && name != "content") item[name] = value;
    turns.push_back(std::move(item));
  }
  out["conversations"] = std::move(turns);
  return out;
}

Json written_alpaca(const Json& messages, const std::string& where) {
  Json out = Json::object();
  size_t at = !messages.empty() && is_of(messages[0], "system") ? 1 : 0;
  const std::string system = at == 1 ? text_of_turn(messages[0], where) : std::string();
  const size_t turns = messages.size() - at;
  for (size_t i = 0; i < turns; ++i)
    check<DataError>(is_of(messages[at + i], i % 2 == 0 ? "user" : "assistant"), where,
                     ": an Alpaca row holds turns of user and assistant, found message ",
                     at + i + 1, " of ", dump_json(messages[at + i]["role"]));
  check<DataError>(turns > 0, where, ": an Alpaca row needs a turn of the user");
  Json history = Json::array();
  for (; at + 2 < messages.size(); at += 2)
    history.push_back({text_of_turn(messages[at], where), text_of_turn(messages[at + 1], where)});
  out["instruction"] = text_of_turn(messages[at], where);
  out["input"] = "";
  if (at + 1 < messages.size()) out["output"] = text_of_turn(messages[at + 1], where);
  if (!system.empty()) out["system"] = system;
  if (!history.empty()) out["history"] = std::move(history);
  return out;
}

Json written_prompt(const Json& messages) {
  size_t end = messages.size();
  while (end > 0 && is_of(messages[end - 1], "assistant")) --end;
  Json out{{"prompt", Json::array()}};
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i == end) out["completion"] = Json::array();
    out[i < end ? "prompt" : "completion"].push_back(messages[i]);
  }
  return out;
}

}  // namespace

Json convert_row(const Json& row, WrittenFormat format, const std::string& where) {
  constexpr std::array kOwnField = {"messages", "conversations", "instruction", "prompt"};
  if (row.contains(kOwnField[static_cast<size_t>(format)])) return row;
  Conversation found = read_conversation(row, where);
  Json out = format == WrittenFormat::kMessages   ? Json{{"messages", std::move(found.messages)}}
             : format == WrittenFormat::kSharegpt ? written_sharegpt(found.messages)
             : format == WrittenFormat::kAlpaca   ? written_alpaca(found.messages, where)
                                                  : written_prompt(found.messages);
  for (auto& [name, value] : found.others.items()) {
    check<DataError>(!out.contains(name), where, ": the row has `", name,
                     "` already, which the format writes");
    out[name] = std::move(value);
  }
  return out;
}

}  // namespace temper::data
