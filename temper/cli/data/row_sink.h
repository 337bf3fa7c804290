// Files of rows that the tools of temper data write.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "temper/base/file.h"
#include "temper/cli/parts/output.h"
#include "temper/data/read/column_types.h"
#include "temper/data/read/compress.h"

namespace temper::cli {

// Lines of JSON, compressed where the name ends with .gz or .zst; one list
// where it ends with .json. Nothing appears under the path until finish(), as
// of OutputFile.
class RowSink {
 public:
  // Throws ConfigError.
  explicit RowSink(const std::string& path);

  // A JSON object; `where` names its row. Throws DataError where a table cannot hold it.
  void line(std::string_view row, const std::string& where);
  void finish();

 private:
  void put(std::string_view text);
  void put_table();

  // The rows of a table until they are all there, in a file without a name.
  struct Table {
    FileDescriptor lines;
    std::string buffer;
    data::ColumnType columns;
    int64_t longest = 0;
  };
  std::string path_;
  std::optional<Table> table_;
  bool is_list_;
  int64_t rows_ = 0;
  std::unique_ptr<data::Compressor> compressor_;
  OutputFile file_;
};

}  // namespace temper::cli
