// Rows of Arrow's record batches as lines of JSON.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <string>

namespace temper::data {

// Invalid, naming the column, where a type has no place in JSON: decimals, times of day, maps whose
// keys are not text. Bytes are text where they are UTF-8, and else the contents of a file, which
// become {"bytes": base64}; those of a struct {bytes, path} are a file in any case. append_row
// takes batches of a schema that passed.
arrow::Status check_schema(const arrow::Schema& schema);

// Appends {"column": value, ...} and '\n'. Throws std::out_of_range at a date outside of the years
// 0 to 9999, and where a row's files are too large.
void append_row(const arrow::RecordBatch& batch, int64_t row, std::string& out);

}  // namespace temper::data
