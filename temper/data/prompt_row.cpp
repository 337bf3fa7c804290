#include "temper/data/prompt_row.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::data {
namespace {

// The field that holds the conversation which the prompt is; null: the prompt is text or ids.
const char* conversation_field(const Json& row) {
  for (const char* ids : {"prompt_ids", "tokens"})
    if (row.contains(ids)) return nullptr;
  const char* const field = row.contains("prompt") ? "prompt" : "messages";
  return row.contains(field) && row[field].is_array() ? field : nullptr;
}

bool is_answer(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// The messages without the assistant's turns that end them.
Json without_answer(const Json& messages, const char* field, const std::string& where) {
  Json asked = messages;
  while (!asked.empty() && is_answer(asked.back())) asked.erase(asked.size() - 1);
  check<DataError>(!asked.empty() || messages.empty(), where, ": `", field,
                   "` has the assistant's words alone; a prompt is what they answer");
  return asked;
}

}  // namespace

std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated) {
  row = normalized_row(format, std::move(row), where);
  PromptRow out;
  out.where = where;
  if (const char* const field = conversation_field(row)) {
    Json asked = row;
    asked[field] = without_answer(row[field], field, where);
    out.has_answer = asked[field].size() < row[field].size();
    out.tokens = prompt_tokens(format, asked, where);
    out.messages = std::make_shared<const Json>(with_system_prompt(format, asked[field]));
    out.chat = format.chat;
  } else {
    out.tokens = prompt_tokens(format, row, where);
  }
  check<DataError>(!out.tokens.empty(), where, ": the prompt has no tokens");
  const int64_t length = static_cast<int64_t>(out.tokens.size());
  if (length > format.max_length) {
    if (format.overlong == Overlong::kDrop) return std::nullopt;
    check<DataError>(format.overlong == Overlong::kTruncate, where, ": the prompt has ", length,
                     " tokens; data.max_length is ", format.max_length,
                     " and data.overlong is error");
    out.tokens.erase(out.tokens.begin(), out.tokens.end() - format.max_length);
    *truncated = true;
  }
  out.fields = std::make_shared<const Json>(std::move(row));
  return out;
}

Loader<PromptRow>::Read prompt_reader(PromptFormat format) {
  return [format = std::move(format)](const RowOrder::Drawn& drawn, LoaderState& state) {
    bool truncated = false;
    std::optional<PromptRow> row = read_prompt_row(format, drawn.file->row(drawn.row),
                                                   drawn.file->where(drawn.row), &truncated);
    state.truncated += truncated;
    return row;
  };
}

}  // namespace temper::data
