#include "temper/data/read/jsonl.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/read/parquet.h"
#include "temper/data/read/table_text.h"
#include "temper/data/read/tf_record.h"

namespace temper::data {

LineReader::LineReader(const std::string& path) : path_(path) {
  if (is_tf_record(path))
    bytes_ = ByteSource::of(open_tf_record(path), path);
  else if (path.ends_with(".parquet"))
    bytes_ = ByteSource::of(open_parquet(path), path);
  else if (is_table_text(path))
    bytes_ = ByteSource::of(open_table_text(path), path);
  else
    bytes_ = ByteSource::open(path, packing_of(path));
}

bool LineReader::next(std::string& line) {
  size_t searched = at_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(buffer_, at_, end - at_);
      at_ = end + 1;
      break;
    }
    buffer_.erase(0, at_);
    at_ = 0;
    searched = buffer_.size();
    check<DataError>(buffer_.size() <= kMaxLineBytes, path_, ":", line_number_ + 1,
                     ": a line of more than 1 GiB");
    if (bytes_->more(buffer_)) continue;
    if (buffer_.empty()) return false;
    line = std::move(buffer_);
    buffer_.clear();
    break;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  ++line_number_;
  if (line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return true;
}

namespace {

// What a line that is no row of JSON Lines shows of its file; empty: nothing.
std::string kind_of_file(std::string_view line) {
  const bool marked = line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF");
  if (marked || (line.size() > 1 && (line[0] == 0) != (line[1] == 0)))
    return "the file is UTF-16, expected UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW_FILE";
  const size_t first = line.find_first_not_of(" \t");
  if (first == line.npos || line[first] != '[') return {};
  return "found a list, expected a row, one JSON object a line; a file that is one list of rows is "
         "read where its name ends with .json";
}

}  // namespace

Json parse_row(std::string_view line, const std::string& where) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::string kind = kind_of_file(line);
  check<DataError>(kind.empty(), where, ": ", kind);
  Json row = parse_json(line, where, BigIntegers::kKept);
  check<DataError>(row.is_object(), where, ": expected a JSON object, found ", row.type_name());
  return row;
}

bool RowReader::next(Json& row) {
  std::string line;
  while (lines_.next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    row = parse_row(line, where());
    return true;
  }
  return false;
}

std::string RowReader::where() const {
  return str(lines_.path(), rows_are_lines_ ? ":" : ": row ", lines_.line_number());
}

bool rows_are_lines(const std::string& path) {
  return !path.ends_with(".parquet") && !is_tf_record(path) &&
         !(path.ends_with(".json") && is_table_text(path));
}

}  // namespace temper::data
