// Random access to the rows of a file in bounded memory: eight bytes a row are kept, never the
// rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/data/read/unpacked_file.h"

namespace temper::data {

// Plain files are read in place; .gz, .zst, .parquet, .tfrecord, tables of text (table_text.h) and
// pipes are unpacked once into an unlinked temporary file, so that the order of rows and every
// shuffle of them are the same whatever the format. Blank lines are no rows. Throws DataError,
// RunError where there is no room to unpack.
class RowFile {
 public:
  // A file without rows is an error unless it may be empty.
  explicit RowFile(const std::string& path, bool may_be_empty = false,
                   const UnpackLimits& limits = {});

  int64_t size() const { return static_cast<int64_t>(begin_.size()); }
  const std::string& path() const { return path_; }
  std::string where(int64_t row) const;  // as RowReader::where()
  std::string line(int64_t row) const;   // its text, without the end of the line; thread-safe
  Json row(int64_t row) const;           // thread-safe
  int64_t row_bytes(int64_t row) const;  // of its line and of blank ones after it
  int64_t bytes() const { return end_; }

 private:
  void index();
  void unpack(const UnpackLimits& limits);
  std::string path_;
  bool rows_are_lines_;
  FileDescriptor file_;
  std::vector<int64_t> begin_;         // of each row's line, in bytes
  std::vector<int32_t> blank_before_;  // empty where no line is blank
  int64_t end_ = 0;
};

// A permutation of [0, n) that needs no memory: a Feistel network over the next power of four,
// walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
int64_t permuted(int64_t index, int64_t n, uint64_t seed, uint64_t source, uint64_t epoch);

}  // namespace temper::data
