// Rows of JSON, one a line: plain, .gz, .zst or converted from .parquet, .json, .csv and .tsv,
// streamed in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/base/json.h"

namespace temper::data {

// The longest row: 1 GiB.
inline constexpr size_t kMaxLineBytes = size_t{1} << 30;

// Lines of a text file, decompressed as they are read by the file's ending. Throws DataError
// ("PATH:LINE: ...").
class LineReader {
 public:
  static std::unique_ptr<LineReader> open(const std::string& path);
  virtual ~LineReader() = default;

  // The next line without its end; false at the end of the file. At most kMaxLineBytes.
  bool next(std::string& line);
  int64_t line_number() const { return line_number_; }  // of the line that next() gave, from 1
  const std::string& path() const { return path_; }

 protected:
  explicit LineReader(std::string path) : path_(std::move(path)) {}
  // More bytes at the end of `buffer`; false when there are none.
  virtual bool more(std::string& buffer) = 0;

 private:
  std::string path_, buffer_;
  size_t at_ = 0;
  int64_t line_number_ = 0;
};

// The rows of a file: blank lines are skipped, every other line is a JSON object.
class RowReader {
 public:
  explicit RowReader(const std::string& path) : lines_(LineReader::open(path)) {}
  bool next(Json& row);
  std::string where() const;  // row_position() of the row that next() gave

 private:
  std::unique_ptr<LineReader> lines_;
};

// Where the number-th line or row of a file (from 1) stands: "PATH:LINE", or "PATH: row N" of
// Parquet and of tables and lists (table_text.h), whose rows are not lines.
std::string row_position(const std::string& path, int64_t number);

// Parses one line into an object; `where` is its row_position().
Json parse_row(std::string_view line, const std::string& where);

}  // namespace temper::data
