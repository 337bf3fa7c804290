#include "temper/data/prompt_row.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::data {
std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated) {
  row = normalized_row(format, std::move(row), RowUse::kPrompt, where);
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
