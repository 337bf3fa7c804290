#include "temper/data/rows/text_format.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/image_fields.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/conversation_format.h"
#include "temper/data/rows/row_fields.h"
#include "temper/data/rows/row_groups.h"
#include "temper/text/chat/conversation.h"
#include "temper/text/chat/message_parts.h"
#include "temper/text/chat/template_checks.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::data {
namespace {

RowFormat format_of(const TextFormat& format, const Json& row) {
  if (format.format == RowFormat::kChatml) return RowFormat::kMessages;
  if (format.format != RowFormat::kAuto) return format.format;
  for (const char* field : {"messages", "prompt", "text", "input_ids", "prompt_ids", "tokens"})
    if (row.contains(field)) return RowFormat::kMessages;
  if (row.contains("conversations")) return RowFormat::kSharegpt;
  if (row.contains("instruction")) return RowFormat::kAlpaca;
  return RowFormat::kMessages;
}

// Tables of parts have a column for every member that any part has.
void drop_nulls(Json& part) {
  if (!part.is_object()) return;
  for (auto it = part.begin(); it != part.end();)
    it = it->is_null() ? part.erase(it) : std::next(it);
}

}  // namespace

void join_text_parts(Json& row, const ChatTemplate* chat, const std::string& where) {
  for (const char* field : {"messages", "prompt", "completion", "chosen", "rejected"}) {
    if (!row.contains(field) || !row[field].is_array()) continue;
    for (Json& message : row[field]) {
      if (!message.is_object() || !message.contains("content") || !message["content"].is_array())
        continue;
      for (Json& part : message["content"]) {
        drop_nulls(part);
        check<DataError>(is_image(part) || text_of_parts(Json::array({part})), where, ": `", field,
                         "` has a message with parts that are neither text nor images; expected "
                         R"(text, or parts {"type": "text", "text": ..} and {"type": "image"})");
      }
    }
    join_unread_parts(row[field], chat, tools_of(row));
  }
}

size_t tokens_needed(const TextFormat& format) {
  const bool all = format.max_length == INT64_MAX || format.overlong == Overlong::kError ||
                   format.overlong == Overlong::kSplit;
  return all ? SIZE_MAX : static_cast<size_t>(format.max_length) + 1;
}

void check_truncates(const TextFormat& format, const std::string& where, const char* what,
                     int64_t tokens) {
  check<DataError>(format.overlong != Overlong::kSplit, where, ": ", what, tokens,
                   " tokens; data.max_length is ", format.max_length,
                   ", and data.overlong: split divides only rows of `text` and `input_ids` under "
                   "sft and distill");
  check<DataError>(format.overlong == Overlong::kTruncate, where, ": ", what, tokens,
                   " tokens; data.max_length is ", format.max_length,
                   " and data.overlong is error");
}

const Tokenizer& tokenizer_of(const TextFormat& format, const std::string& where) {
  check<DataError>(format.tokenizer != nullptr, where,
                   ": text needs a tokenizer, and the model directory has no tokenizer.json; give "
                   "token ids");
  return *format.tokenizer;
}

const ChatTemplate& chat_of(const TextFormat& format, const std::string& where) {
  check<DataError>(format.chat != nullptr, where,
                   ": messages need a chat template, and the model directory has none; ",
                   format.no_chat);
  return *format.chat;
}

Json normalized_row(const TextFormat& format, Json row, const std::string& where) {
  rename_columns(row, format.columns, where);
  const RowFormat kind = format_of(format, row);
  if (kind == RowFormat::kSharegpt)
    row = from_sharegpt(std::move(row), where);
  else if (kind == RowFormat::kAlpaca)
    row = from_alpaca(std::move(row), format.chat != nullptr, where);
  join_text_parts(row, format.chat.get(), where);
  if (kind == RowFormat::kMessages) prompt_as_message(format, row, where);
  return row;
}

void prompt_as_message(const TextFormat& format, Json& row, const std::string& where) {
  if (format.prompts_as != PromptsAs::kUser) return;
  const auto prompt = row.find("prompt");
  if (prompt == row.end() || !prompt->is_string()) return;
  check<DataError>(format.chat != nullptr, where,
                   ": data.prompts_as: user needs a chat template, and the model directory has "
                   "none; ",
                   format.no_chat);
  *prompt = Json::array({{{"role", "user"}, {"content", *prompt}}});
}

void answers_as_messages(const TextFormat& format, Json& row) {
  if (format.prompts_as != PromptsAs::kUser) return;
  if (!row.contains("prompt") || !row["prompt"].is_array()) return;
  for (const char* field : {"completion", "chosen", "rejected"})
    if (const auto answer = row.find(field); answer != row.end() && answer->is_string())
      *answer = Json::array({{{"role", "assistant"}, {"content", *answer}}});
}

Tokenizer::Quotes quotes_of(const TextFormat& format) {
  return format.control_tokens == ControlTokens::kText ? Tokenizer::Quotes::kMarked
                                                       : Tokenizer::Quotes::kNone;
}

Json quoted(const TextFormat& format, Json value) {
  if (!format.tokenizer) return value;
  return temper::quoted(*format.tokenizer, quotes_of(format), std::move(value));
}

std::string group_of(const TextFormat& format, const Json& row, const std::string& where) {
  if (!format.groups) return {};
  Json renamed = row;
  rename_columns(renamed, format.columns, where);
  if (format.ungrouped && !format.groups->has(renamed)) return {};
  const std::string group = format.groups->of(renamed, where);
  return group.empty() ? "(empty)" : group;
}

Json with_system_prompt(const TextFormat& format, const Json& messages) {
  if (format.system_prompt.empty() || !messages.is_array()) return messages;
  const bool begins_with_one =
      !messages.empty() && messages[0].is_object() && messages[0].contains("role") &&
      (messages[0]["role"] == "system" || messages[0]["role"] == "developer");
  if (begins_with_one) return messages;
  Json out = Json::array();
  out.push_back({{"role", "system"}, {"content", format.system_prompt}});
  for (const Json& message : messages) out.push_back(message);
  return out;
}

Json tools_of(const Json& row) { return row.contains("tools") ? row["tools"] : Json(); }

std::vector<int32_t> prompt_tokens(const TextFormat& format, const Json& row,
                                   const std::string& where, size_t limit,
                                   const RowImages* images) {
  for (const char* field : {"prompt_ids", "tokens"})
    if (row.contains(field)) return token_ids(row[field], field, format.vocabulary, where);
  const char* const field = row.contains("prompt") ? "prompt" : "messages";
  check<DataError>(row.contains(field), where, ": the row has ", field_names(row),
                   "; expected prompt (text or messages), messages, or prompt_ids; data.columns "
                   "(--columns) renames fields, as in {prompt: question}");
  const Json& prompt = row[field];
  const bool text = prompt.is_string() && row.contains("prompt");
  check<DataError>(text || prompt.is_array(), where, ": `", field, "` must be ",
                   row.contains("prompt") ? "text or messages" : "a list of messages");
  const Tokenizer& tokenizer = tokenizer_of(format, where);
  const ChatTemplate* chat = text ? nullptr : &chat_of(format, where);
  try {
    const Tokenizer::Quotes quotes = quotes_of(format);
    const Json asked = quoted(format, prompt);
    if (text)
      return encode_beginning(
          tokenizer, with_images(format, asked.get<std::string>(), images ? *images : RowImages()),
          limit, quotes);
    const Json messages = with_system_prompt(format, asked), tools = quoted(format, tools_of(row));
    check_roles(*chat, messages, tools);
    return tokenizer.encode_first(chat->render(messages, tools, true), limit, quotes);
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
}

}  // namespace temper::data
