#include "temper/data/sft_row.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/row_fields.h"

namespace temper::data {
namespace {

const Tokenizer& tokenizer(const SftFormat& format, const std::string& where) {
  check<DataError>(
      format.tokenizer != nullptr, where,
      ": text needs a tokenizer, and the model directory has no tokenizer.json; give input_ids");
  return *format.tokenizer;
}
const ChatTemplate& chat(const SftFormat& format, const std::string& where) {
  check<DataError>(format.chat != nullptr, where,
                   ": messages need a chat template, and the model directory has none");
  return *format.chat;
}

TokenPath read_ids(const SftFormat& format, const Json& row, const std::string& where) {
  TokenPath out;
  out.tokens = token_ids(row["input_ids"], "input_ids", format.vocabulary, where);
  out.labels = row.contains("labels")
                   ? token_ids(row["labels"], "labels", format.vocabulary, where, -100)
                   : out.tokens;
  check<DataError>(out.labels.size() == out.tokens.size(), where, ": `labels` has ",
                   out.labels.size(), " entries, `input_ids` ", out.tokens.size());
  return out;
}

TokenPath from(TokenizedConversation c) { return {std::move(c.tokens), std::move(c.labels)}; }

TokenPath read_text(const SftFormat& format, const Json& row, const std::string& where) {
  check<DataError>(row["text"].is_string(), where, ": `text` must be text");
  TokenPath out;
  out.tokens = tokenizer(format, where).encode(row["text"].get<std::string>());
  if (format.eos && (out.tokens.empty() || out.tokens.back() != *format.eos))
    out.tokens.push_back(*format.eos);
  out.labels = out.tokens;
  return out;
}

TokenPath read_prompt_completion(const SftFormat& format, const Json& row,
                                 const std::string& where) {
  const Json &prompt = row["prompt"], &completion = row["completion"];
  if (prompt.is_string() && completion.is_string())
    return from(tokenize_prompt_completion(tokenizer(format, where), prompt.get<std::string>(),
                                           completion.get<std::string>(), format.train_on,
                                           format.eos));
  check<DataError>(prompt.is_array() && completion.is_array(), where,
                   ": `prompt` and `completion` must both be text or both be messages");
  return from(tokenize_prompt_completion(tokenizer(format, where), chat(format, where), prompt,
                                         completion, row.contains("tools") ? row["tools"] : Json(),
                                         format.train_on));
}

TokenPath read_row(const SftFormat& format, const Json& row, const std::string& where) {
  if (row.contains("input_ids")) return read_ids(format, row, where);
  if (row.contains("messages"))
    return from(
        tokenize_conversation(tokenizer(format, where), chat(format, where), row["messages"],
                              row.contains("tools") ? row["tools"] : Json(), format.train_on));
  if (row.contains("prompt") && row.contains("completion"))
    return read_prompt_completion(format, row, where);
  if (row.contains("text")) return read_text(format, row, where);
  throw DataError(
      temper::str(where, ": the row has ", field_names(row),
                  "; expected messages, prompt and completion, text, or input_ids; "
                  "data.columns renames fields, as in {prompt: question, completion: answer}"));
}

}  // namespace

std::optional<SftRow> read_sft_row(const SftFormat& format, Json row, const std::string& where,
                                   bool* truncated) {
  rename_columns(row, format.columns, where);
  TokenPath out;
  try {
    out = read_row(format, row, where);
  } catch (const DataError& e) {
    // Templates and tokenizers do not know the row.
    throw DataError(std::string(e.what()).starts_with(where) ? e.what() : where + ": " + e.what());
  }
  check<DataError>(!out.tokens.empty(), where, ": the row has no tokens");
  if (static_cast<int64_t>(out.tokens.size()) <= format.max_length) return row_of(std::move(out));
  if (format.overlong == Overlong::kDrop) return std::nullopt;
  check<DataError>(format.overlong == Overlong::kTruncate, where, ": ", out.tokens.size(),
                   " tokens; data.max_length is ", format.max_length,
                   " and data.overlong is error");
  out.tokens.resize(static_cast<size_t>(format.max_length));
  out.labels.resize(static_cast<size_t>(format.max_length));
  *truncated = true;
  return row_of(std::move(out));
}

}  // namespace temper::data
