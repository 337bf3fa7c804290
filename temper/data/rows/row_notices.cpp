#include "temper/data/rows/row_notices.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/chat/template_checks.h"

namespace temper::data {
namespace {

void count(RowNotices::Kind& kind, const std::string& where, int64_t number,
           const std::string& what = {}) {
  if (kind.rows++ > 0 && kind.first <= number) return;
  kind.first = number;
  kind.where = where;
  kind.what = what;
}

void merge(RowNotices::Kind& kind, const RowNotices::Kind& other) {
  if (other.rows > 0 && (kind.rows == 0 || other.first < kind.first)) {
    kind.first = other.first;
    kind.where = other.where;
    kind.what = other.what;
  }
  kind.rows += other.rows;
}

// The first special token that a string within the value spells.
std::optional<int32_t> control_token_in(const Tokenizer& tokenizer, const Json& value) {
  if (value.is_string()) return tokenizer.control_token_in(value.get_ref<const std::string&>());
  if (value.is_structured())
    for (const Json& item : value)
      if (const auto token = control_token_in(tokenizer, item)) return token;
  return {};
}

std::optional<int32_t> control_token_of(const TextFormat& format, const Json& row) {
  for (const char* field :
       {"messages", "prompt", "completion", "chosen", "rejected", "text", "tools"})
    if (row.contains(field))
      if (const auto token = control_token_in(*format.tokenizer, row[field])) return token;
  return {};
}

bool is_text_prompt(const TextFormat& format, const Json& row) {
  for (const char* field : {"messages", "input_ids", "prompt_ids", "tokens"})
    if (row.contains(field)) return false;
  return row.contains("prompt") && row["prompt"].is_string() &&
         !control_token_in(*format.tokenizer, row["prompt"]);
}

std::string rows_text(int64_t rows, const char* verb, const char* verbs) {
  return str(rows, rows == 1 ? " row " : " rows ", rows == 1 ? verb : verbs);
}

}  // namespace

void RowNotices::add(const TextFormat& format, Json row, const std::string& where, int64_t number) {
  if (has_text_messages(row, format.columns)) count(text_messages, where, number);
  if (!format.tokenizer) return;
  try {
    row = normalized_row(format, std::move(row), where);
    answers_as_messages(format, row);
  } catch (const DataError&) {
    return;  // its reader knows it as something else
  }
  if (const auto token = control_token_of(format, row))
    count(control_tokens, where, number, format.tokenizer->token_of(*token));
  if (!format.chat) return;
  if (is_text_prompt(format, row)) count(text_prompts, where, number);
  const Json tools = tools_of(row);
  // Each conversation of the row, with its prompt.
  const Json prompt = row.contains("prompt") && row["prompt"].is_array() ? row["prompt"] : Json();
  WrittenTools all;
  for (const char* field : {"messages", "prompt", "completion", "chosen", "rejected"}) {
    if (!row.contains(field) || !row[field].is_array()) continue;
    const bool is_answer = field != std::string("messages") && field != std::string("prompt");
    Json messages = is_answer && prompt.is_array() ? prompt : Json::array();
    for (const Json& message : row[field]) messages.push_back(message);
    try {
      const WrittenTools written = written_tools(*format.chat, messages, tools);
      all.list = all.list && written.list;
      all.calls = all.calls && written.calls;
    } catch (const DataError&) {
      // A part of the conversation that the template does not render by itself.
    }
  }
  if (!all.list) count(unwritten_tools, where, number);
  if (!all.calls) count(unwritten_calls, where, number);
}

void RowNotices::add(const RowNotices& others) {
  merge(text_messages, others.text_messages);
  merge(text_prompts, others.text_prompts);
  merge(control_tokens, others.control_tokens);
  merge(unwritten_tools, others.unwritten_tools);
  merge(unwritten_calls, others.unwritten_calls);
}

std::string RowNotices::about_text_messages() const {
  if (text_messages.rows == 0) return {};
  return rows_text(text_messages.rows, "has", "have") +
         " a field (prompt, completion, chosen or rejected) that is the JSON text of messages, and "
         "is read as plain text: the chat template is not applied; write the list itself, not as "
         "text";
}

std::string RowNotices::about_text_prompts() const {
  if (text_prompts.rows == 0) return {};
  return str(rows_text(text_prompts.rows, "has", "have"),
             " a text prompt (first: ", text_prompts.where,
             "), which is read without the model's chat template, so the model does not learn to "
             "answer in a chat; data.prompts_as: user makes it a user message, and so does "
             "`temper data convert --to messages`");
}

std::string RowNotices::about_control_tokens(ControlTokens how) const {
  if (control_tokens.rows == 0) return {};
  return str(rows_text(control_tokens.rows, "contains", "contain"),
             " the text of a special token (first: ", control_tokens.where, ", `",
             control_tokens.what, "`), tokenized as ",
             how == ControlTokens::kText
                 ? "ordinary text"
                 : "that token; data.control_tokens: text tokenizes it as ordinary text");
}

std::string RowNotices::about_tools() const {
  if (unwritten_tools.rows + unwritten_calls.rows == 0) return {};
  std::string found;
  if (unwritten_tools.rows > 0)
    found = str("the `tools` of ", rows_text(unwritten_tools.rows, "(", "("), "the first is ",
                unwritten_tools.where, ")");
  if (unwritten_calls.rows > 0)
    found +=
        str(found.empty() ? "" : " and ", "the `tool_calls` of ",
            rows_text(unwritten_calls.rows, "(", "("), "the first is ", unwritten_calls.where, ")");
  return "the chat template leaves out " + found +
         (unwritten_calls.rows > 0 ? ": turns with calls alone are trained as empty turns" : "") +
         "; set data.chat_template to a template that writes them";
}

}  // namespace temper::data
