// How the rows of one source are read.
#pragma once

#include <filesystem>

#include "temper/data/read/row_set.h"
#include "temper/data/rows/text_format.h"

namespace temper::data {

// The format with what the source says of its own rows, and the folder of this row's file.
template <class Format>
Format of_source(Format format, const RowSet& set, int64_t row) {
  format.directory = std::filesystem::path(set.file(row)).parent_path().string();
  if (set.columns()) format.columns = *set.columns();
  if (set.format() != RowFormat::kAuto) format.format = set.format();
  return format;
}

}  // namespace temper::data
