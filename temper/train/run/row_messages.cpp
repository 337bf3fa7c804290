#include "temper/train/run/row_messages.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper::train {
void warn_about_rows(const data::LoaderState& rows, int64_t max_length,
                     const data::SftFormat& format, Messages& messages) {
  if (rows.truncated > 0)
    messages.warn_once("truncated rows",
                       str("rows longer than data.max_length, ", max_length, " tokens, are cut (",
                           rows.truncated, " of the first ", rows.rows, ")"));
  if (rows.dropped > 0)
    messages.warn_once("dropped rows", str("rows longer than data.max_length, ", max_length,
                                           " tokens, are left out (", rows.dropped,
                                           " of the first ", rows.rows + rows.dropped, ")"));
  if (rows.untrained > 0)
    messages.warn_once("untrained rows", str(rows.untrained, " of the first ", rows.rows,
                                             " rows have no token that the loss counts"));
  const std::vector<int32_t>& ends = format.ends;
  if (rows.rows > 0 && rows.with_eos == 0 && (format.eos || !ends.empty()))
    messages.warn_once("end token",
                       str("no row trains the end token ", ends.empty() ? *format.eos : ends[0],
                           ends.size() > 1 ? " or another at which sampling ends" : "",
                           ": the model will not learn to stop"));
}

void check_rows_train(const RunConfig& config, const data::LoaderState& rows, int64_t all_rows,
                      bool last, const std::string& why) {
  const bool enough = last || rows.rows >= std::min(all_rows, kRowsToJudge);
  check<DataError>(rows.untrained < rows.rows || !enough, config.where("data.train"),
                   ": none of the ", rows.rows, " rows so far trains a token",
                   why.empty() ? "" : "; of the last ones: ", why);
}

void warn_about_notices(const data::RowSurvey& survey, data::ControlTokens how,
                        Messages& messages) {
  const data::RowNotices& n = survey.notices;
  const auto warn = [&](const char* what, const std::string& text) {
    if (!text.empty()) messages.warn_once(what, text);
  };
  warn("text messages", n.about_text_messages());
  warn("text prompts", n.about_text_prompts());
  warn("unwritten tools", n.about_tools());
  warn("held out", n.held_out);
  if (how == data::ControlTokens::kParse) warn("control tokens", n.about_control_tokens(how));
}

std::vector<std::pair<std::string, std::string>> row_summary(
    const data::LoaderState& rows, const std::vector<data::SourceSpec>& sources) {
  std::vector<std::pair<std::string, std::string>> lines{
      {"rows", std::to_string(rows.rows)},
      {"rows cut", std::to_string(rows.truncated)},
      {"rows left out", std::to_string(rows.dropped)}};
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    lines.emplace_back("rows of " + sources[i].name, std::to_string(rows.counts[i]));
  return lines;
}

}  // namespace temper::train
