#include "temper/data/prompt_row.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/row_fields.h"

namespace temper::data {
namespace {

std::vector<int32_t> prompt_tokens(const PromptFormat& format, const Json& row,
                                   const std::string& where) {
  if (row.contains("prompt_ids"))
    return token_ids(row["prompt_ids"], "prompt_ids", format.vocabulary, where);
  check<DataError>(row.contains("prompt"), where, ": the row has ", field_names(row),
                   "; expected prompt (text or messages) or prompt_ids; data.columns renames "
                   "fields, as in {prompt: question}");
  const Json& prompt = row["prompt"];
  check<DataError>(prompt.is_string() || prompt.is_array(), where,
                   ": `prompt` must be text or messages");
  check<DataError>(
      format.tokenizer != nullptr, where,
      ": text needs a tokenizer, and the model directory has no tokenizer.json; give prompt_ids");
  if (prompt.is_string()) return format.tokenizer->encode(prompt.get<std::string>());
  check<DataError>(format.chat != nullptr, where,
                   ": messages need a chat template, and the model directory has none");
  try {
    return format.tokenizer->encode(
        format.chat->render(prompt, row.contains("tools") ? row["tools"] : Json(), true));
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
}

}  // namespace

std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated) {
  rename_columns(row, format.columns, where);
  PromptRow out;
  out.where = where;
  out.tokens = prompt_tokens(format, row, where);
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
