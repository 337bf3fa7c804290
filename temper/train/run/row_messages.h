// Messages about a run's training rows: rows that were cut, left out or taught nothing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "temper/data/loader.h"
#include "temper/train/config.h"
#include "temper/train/messages.h"

namespace temper::train {

// Warns about rows, each warning once a run. format: how the rows were read.
void warn_about_rows(const data::LoaderState& rows, int64_t max_length,
                     const data::SftFormat& format, Messages& messages);

inline constexpr int64_t kRowsToJudge = 64;  // enough rows to know that they are of no use

// A run that trains nothing is no success: throws DataError that ends it once enough rows are known
// to be of no use. all_rows: of the data. last: the step is the run's last one. why: of the last
// rows, may be empty.
void check_rows_train(const RunConfig& config, const data::LoaderState& rows, int64_t all_rows,
                      bool last, const std::string& why);

// Warns, each once a run, of what the survey noticed about rows (data::RowNotices).
void warn_about_notices(const data::RowSurvey& survey, data::ControlTokens how, Messages& messages);

// Lines of the report.
std::vector<std::pair<std::string, std::string>> row_summary(
    const data::LoaderState& rows, const std::vector<data::SourceSpec>& sources);

}  // namespace temper::train
