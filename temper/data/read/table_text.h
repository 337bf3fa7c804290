// Files of rows that are not a JSON object a line: .json with one list of all rows, .csv and .tsv.
#pragma once

#include <string>
#include <string_view>

#include "temper/data/read/unpacked_file.h"

namespace temper::data {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // a text may begin with it

// Whether the file is such a table: by its ending, and of .json by its first character. A .json
// with an object a line is none.
bool is_table_text(const std::string& path);

// Converts the file, in bounded memory, into an unlinked temporary file that has a row a line;
// returns it, at its begin. A row of .csv and .tsv stays on the line on which it begins. The first
// line of .csv and .tsv (RFC 4180) names the fields; cells are text, empty ones null, and the JSON
// of a conversation is its messages. Throws DataError, also where the text is not UTF-8 or a field
// has no name of its own, and RunError where the disk is full.
FileDescriptor open_table_text(const std::string& path, const UnpackLimits& limits = {});

}  // namespace temper::data
