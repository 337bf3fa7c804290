// Rows of JSON, one a line: plain, .gz, .zst or converted from .parquet, .tfrecord, .json, .csv and
// .tsv, streamed in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/base/json.h"
#include "temper/data/read/byte_source.h"

namespace temper::data {

// The longest row: 1 GiB.
inline constexpr size_t kMaxLineBytes = size_t{1} << 30;

// Lines of a text file, decompressed as they are read by the file's ending. Throws DataError
// ("PATH:LINE: ...").
class LineReader {
 public:
  explicit LineReader(const std::string& path);

  // The next line without its end; false at the end of the file. At most kMaxLineBytes.
  bool next(std::string& line);
  int64_t line_number() const { return line_number_; }  // of the line that next() gave, from 1
  const std::string& path() const { return path_; }

 private:
  std::string path_, buffer_;
  std::unique_ptr<ByteSource> bytes_;
  size_t at_ = 0;
  int64_t line_number_ = 0;
};

// Whether each row of the file begins on a line of its own: not in Parquet and TFRecord, nor in a
// .json that is one list.
bool rows_are_lines(const std::string& path);

// The rows of a file: blank lines are skipped, every other line is a JSON object.
class RowReader {
 public:
  explicit RowReader(const std::string& path)
      : lines_(path), rows_are_lines_(rows_are_lines(path)) {}
  bool next(Json& row);
  // "PATH:LINE" of the row that next() gave, or "PATH: row N" (from 1) where rows_are_lines() is
  // false.
  std::string where() const;
  const std::string& path() const { return lines_.path(); }

 private:
  LineReader lines_;
  bool rows_are_lines_;
};

// Parses one line into an object; `where` is its position.
Json parse_row(std::string_view line, const std::string& where);

}  // namespace temper::data
