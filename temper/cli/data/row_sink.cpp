#include "temper/cli/data/row_sink.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/parquet.h"

namespace temper::cli {
namespace {
constexpr size_t kTableBuffer = size_t{1} << 20;  // bytes
}  // namespace

RowSink::RowSink(const std::string& path)
    : path_(path),
      is_list_(path.ends_with(".json")),
      compressor_(data::Compressor::for_path(path)),
      file_(path) {
  if (path.ends_with(".parquet"))
    table_ = Table{.lines = open_temporary("temper-rows"), .buffer = {}, .columns = {}};
}

void RowSink::put(std::string_view text) {
  file_.bytes(compressor_ ? compressor_->add(text) : std::string(text));
}

void RowSink::line(std::string_view row, const std::string& where) {
  ++rows_;
  if (table_) {
    const Json object = data::parse_row(row, where);
    // As it is parsed: without a key that occurs twice.
    const std::string text = dump_json(object) + "\n";
    table_->columns.add(object, "", where);
    table_->longest = std::max(table_->longest, static_cast<int64_t>(text.size()));
    table_->buffer += text;
    if (table_->buffer.size() < kTableBuffer) return;
    write_all(table_->lines.get(), table_->buffer.data(), table_->buffer.size(), path_);
    table_->buffer.clear();
    return;
  }
  std::string text;
  if (is_list_) text = rows_ == 1 ? "[\n" : ",\n";
  text += row;
  if (!is_list_) text += '\n';
  put(text);
}

void RowSink::put_table() {
  write_all(table_->lines.get(), table_->buffer.data(), table_->buffer.size(), path_);
  const FileDescriptor out = open_temporary("temper-table");
  data::write_parquet(table_->lines.get(), table_->columns, table_->longest, out.get(), path_);
  std::vector<char> piece(kTableBuffer);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(out.get(), piece.data(), piece.size(), at);
    if (n < 0 && errno == EINTR) continue;
    check(n >= 0, path_, ": cannot read what was written: ", errno_text);
    if (n == 0) return;
    file_.bytes({piece.data(), static_cast<size_t>(n)});
    at += n;
  }
}

void RowSink::finish() {
  if (table_) put_table();
  if (is_list_) put(rows_ == 0 ? "[]\n" : "\n]\n");
  if (compressor_) file_.bytes(compressor_->end());
  file_.finish();
}

}  // namespace temper::cli
