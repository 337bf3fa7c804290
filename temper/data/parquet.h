// Parquet files as lines of JSON. Arrow's C++ library does the reading; it lies behind a plugin
// that is loaded at the first Parquet file, so that nobody else waits for it or needs it.
#pragma once

#include <string>

#include "temper/data/unpacked_file.h"

namespace temper::data {

// Converts the file, in bounded memory, into an unlinked temporary file that has a row a line;
// returns it, at its begin. Throws DataError, RunError where
// writing fails or the disk is full.
FileDescriptor open_parquet(const std::string& path, const UnpackLimits& limits = {});

// The version of Arrow, or null where this build has no plugin.
const char* arrow_version();

}  // namespace temper::data
