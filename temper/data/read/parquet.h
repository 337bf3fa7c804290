// Parquet files as lines of JSON. Arrow's C++ library does the reading; it lies behind a plugin
// that is loaded at the first Parquet file, so that nobody else waits for it or needs it.
#pragma once

#include <string>

#include "temper/data/read/column_types.h"
#include "temper/data/read/unpacked_file.h"

namespace temper::data {

// Converts the file, in bounded memory, into an unlinked temporary file that has a row a line;
// returns it, at its begin. Throws DataError, RunError where
// writing fails or the disk is full.
FileDescriptor open_parquet(const std::string& path, const UnpackLimits& limits = {});

// Writes rows of JSON, a line each of at most `longest` bytes, from one open file to another as
// Parquet. `columns` are the types of the rows' fields; `path` begins messages. Throws ConfigError
// where this build has no plugin or it does not load, RunError where writing fails.
void write_parquet(int lines, const ColumnType& columns, int64_t longest, int out,
                   const std::string& path);

// The version of Arrow, or null where this build has no plugin.
const char* arrow_version();

}  // namespace temper::data
