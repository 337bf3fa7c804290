#include "temper/data/read/table_text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/unicode.h"

namespace temper::data {
namespace {

// A table's limit, since an empty cell takes 32 bytes of memory but one byte of a file.
constexpr size_t kMaxColumns = 65536;

// The bytes of a file, one after the other, without a byte order mark at its begin.
class Characters {
 public:
  // Throws DataError where the file cannot be opened, or is UTF-16.
  explicit Characters(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "rbe"), &std::fclose) {
    check<DataError>(file_ != nullptr, path, ": cannot open: ", errno_text);
    for (int c; begin_.size() < 3 && (c = std::getc(file_.get())) != EOF;)
      begin_ += static_cast<char>(c);
    // In UTF-16 without a mark, one byte of each ASCII character is 0.
    check<DataError>(!begin_.starts_with("\xFF\xFE") && !begin_.starts_with("\xFE\xFF") &&
                         begin_.find('\0') == std::string::npos,
                     path, ": the text is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 ",
                     "-t UTF-8 ", path, " > NEW_FILE");
    if (begin_ == kByteOrderMark) begin_.clear();
  }
  // EOF at the end.
  int next() {
    const int c = at_begin() ? byte(begin_[used_++]) : std::getc(file_.get());
    check_read(c);
    if (c == '\n') ++line_;
    return c;
  }
  // The next one that is no white space.
  int next_visible() {
    while (true) {
      const int c = next();
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c;
    }
  }
  int peek() {
    if (at_begin()) return byte(begin_[used_]);
    const int c = std::getc(file_.get());
    check_read(c);
    return std::ungetc(c, file_.get());
  }
  std::string where() const { return str(path_, ":", line_); }
  int64_t line() const { return line_; }

 private:
  void check_read(int c) const {
    check<DataError>(c != EOF || !std::ferror(file_.get()), path_, ": cannot read: ", errno_text);
  }
  static int byte(char c) { return static_cast<unsigned char>(c); }
  bool at_begin() const { return used_ < begin_.size(); }

  std::string path_, begin_;  // the first bytes, of which so many were given:
  size_t used_ = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t line_ = 1;
};

void append(std::string& text, int c, const std::string& where) {
  check<DataError>(text.size() < kMaxLineBytes, where, ": a row of more than 1 GiB");
  text += static_cast<char>(c);
}

// The text of one element of a list, up to the comma or bracket behind it, which is returned.
int read_element(Characters& in, int c, std::string& text) {
  const std::string begin = in.where();
  int depth = 0;
  bool quoted = false;
  for (; c != EOF; c = in.next()) {
    if (!quoted && depth == 0 && (c == ',' || c == ']')) return c;
    if (quoted && c == '\\') {
      append(text, c, begin);
      c = in.next();
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      ++depth;
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
    append(text, !quoted && (c == '\n' || c == '\r') ? ' ' : c, begin);
  }
  throw DataError(begin + ": the file ends within this row of its list");
}

void convert_list(Characters& in, UnpackedFile& out) {
  in.next_visible();  // the bracket
  int c = in.next_visible();
  while (c != ']') {
    std::string row;
    const std::string where = in.where();
    c = read_element(in, c, row);
    // Each line of the new file is a row, whatever is wrong with it; its errors are found there.
    check<DataError>(row.find_first_not_of(' ') != std::string::npos, where,
                     ": a row is missing between two commas");
    row += '\n';
    out.write(row.data(), static_cast<int64_t>(row.size()));
    if (c == ',') c = in.next_visible();
  }
  const int behind = in.next_visible();
  check<DataError>(behind == EOF, in.where(), ": more follows the list of rows");
}

// The cells of a row, within bounds.
class Cells {
 public:
  // where: of the row. most: cells that it may have; `beyond` says what is wrong with more.
  Cells(std::string where, size_t most, std::string beyond)
      : where_(std::move(where)), most_(most), beyond_(std::move(beyond)) {}

  void begin_cell() {
    check<DataError>(cells_.size() < most_, where_, ": ", beyond_);
    cells_.emplace_back();
    count_byte();
  }
  void add(int c) {
    count_byte();
    cells_.back() += static_cast<char>(c);
  }
  bool cell_is_empty() const { return cells_.back().empty(); }
  // Throws DataError where the text is not UTF-8: it would not come back as it was.
  std::vector<std::string> take(const std::string& path) {
    for (const std::string& cell : cells_) {
      const size_t valid = valid_utf8_prefix(cell);
      if (valid == cell.size()) continue;
      char hex[8];
      std::snprintf(hex, sizeof hex, "0x%02X", static_cast<unsigned char>(cell[valid]));
      throw DataError(str(where_, ": the text is not UTF-8 (byte ", hex, "); convert it with ",
                          "iconv -f ENCODING -t UTF-8 ", path, " > NEW_FILE, where ENCODING is ",
                          "often WINDOWS-1252"));
    }
    return std::move(cells_);
  }
  const std::string& where() const { return where_; }

 private:
  void count_byte() {
    check<DataError>(++bytes_ <= kMaxLineBytes, where_, ": a row of more than 1 GiB");
  }

  std::string where_;
  size_t most_, bytes_ = 0;
  std::string beyond_;
  std::vector<std::string> cells_;
};

// Reads the next row, if there is one.
void read_cells(Characters& in, char separator, Cells& cells) {
  if (in.peek() == EOF) return;
  cells.begin_cell();
  bool quoted = false;
  while (true) {
    const int c = in.next();
    if (c == EOF) {
      check<DataError>(!quoted, cells.where(), ": a quote of this row is not closed");
      return;
    }
    if (quoted) {
      if (c == '"' && in.peek() != '"') {
        quoted = false;
        const int behind = in.peek();
        check<DataError>(behind == separator || behind == '\n' || behind == '\r' || behind == EOF,
                         in.where(),
                         ": text follows the closing quote of a cell; a quote within a cell in "
                         "quotes is doubled");
      } else {
        cells.add(c);
        if (c == '"') in.next();  // two of them are one
      }
    } else if (c == '"' && cells.cell_is_empty()) {
      quoted = true;
    } else if (c == separator) {
      cells.begin_cell();
    } else if (c == '\n') {
      return;
    } else if (c != '\r' || in.peek() != '\n') {
      cells.add(c);
    }
  }
}

// The columns' names, from the first line; none in an empty file.
std::vector<std::string> read_names(Characters& in, char separator, const std::string& path) {
  Cells cells(in.where(), kMaxColumns, str("more than ", kMaxColumns, " columns"));
  read_cells(in, separator, cells);
  std::vector<std::string> names = cells.take(path), sorted = names;
  for (size_t i = 0; i < names.size(); ++i)
    check<DataError>(!names[i].empty(), cells.where(), ": column ", i + 1, " of ", names.size(),
                     " has no name");
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw DataError(cells.where() + ": two columns are named `" + *twice + "`");
  return names;
}

// Text; null where the cell is empty; a list where it is the JSON of a conversation, for which a
// table has no other form.
Json value_of_cell(std::string cell, const std::string& column, const std::string& where) {
  if (cell.empty()) return {};
  if (std::optional<Json> messages = messages_in_text(cell)) return std::move(*messages);
  for (const char* python : {"[{'role'", "[{'content'", "[{'from'"})
    check<DataError>(!cell.starts_with(python), where, ": `", column,
                     "` is a conversation as Python prints it; write it as JSON (json.dumps)");
  return Json(std::move(cell));
}

void convert_cells(Characters& in, char separator, const std::string& path, UnpackedFile& out) {
  const std::vector<std::string> names = read_names(in, separator, path);
  const std::string expected =
      str("cells, expected ", names.size(), ", as the first line of ", path, " has");
  int64_t written = 0;  // lines of `out`
  while (true) {
    const int64_t begin = in.line();
    Cells row(in.where(), names.size(), str("found more than ", names.size(), " ", expected));
    read_cells(in, separator, row);
    std::vector<std::string> cells = row.take(path);
    if (cells.empty()) return;
    if (cells.size() == 1 && cells[0].empty()) continue;  // a blank line
    check<DataError>(cells.size() == names.size(), row.where(), ": found ", cells.size(), " ",
                     expected);
    Json object = Json::object();
    auto& members = object.get_ref<Json::object_t&>();  // not []: it looks at all before
    for (size_t i = 0; i < names.size(); ++i)
      members.emplace_back(names[i], value_of_cell(std::move(cells[i]), names[i], row.where()));
    // Blank lines stand for the names and for line ends within cells: a row keeps its line.
    const std::string line =
        std::string(static_cast<size_t>(begin - 1 - written), '\n') + dump_json(object) + "\n";
    written = begin;
    out.write(line.data(), static_cast<int64_t>(line.size()));
  }
}

}  // namespace

bool is_table_text(const std::string& path) {
  if (path.ends_with(".csv") || path.ends_with(".tsv")) return true;
  if (!path.ends_with(".json")) return false;
  std::error_code none;
  check<DataError>(std::filesystem::is_regular_file(path, none), path,
                   ": expected a regular file, which is read twice; of a pipe, name it .jsonl");
  return Characters(path).next_visible() == '[';
}

FileDescriptor open_table_text(const std::string& path, const UnpackLimits& limits) {
  UnpackedFile out(path, limits);
  Characters in(path);
  if (path.ends_with(".json"))
    convert_list(in, out);
  else
    convert_cells(in, path.ends_with(".tsv") ? '\t' : ',', path, out);
  return out.release();
}

}  // namespace temper::data
