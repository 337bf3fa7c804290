#include "temper/data/read/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/parquet.h"
#include "temper/data/read/table_text.h"
#include "temper/data/read/tf_record.h"

namespace temper::data {
namespace {
constexpr int64_t kPiece = int64_t{1} << 16;  // bytes read at once

bool is_pipe(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  return std::filesystem::is_fifo(status) || std::filesystem::is_character_file(status) ||
         std::filesystem::is_socket(status);
}

// A pipe has no size that its rows could be compared with.
UnpackLimits of_pipe(const UnpackLimits& limits) {
  return {.reserve_bytes = limits.reserve_bytes, .ratio = INT64_MAX};
}

}  // namespace

RowFile::RowFile(const std::string& path, bool may_be_empty, const UnpackLimits& limits)
    : path_(path), rows_are_lines_(rows_are_lines(path)) {
  if (is_tf_record(path)) {
    file_ = open_tf_record(path, is_pipe(path) ? of_pipe(limits) : limits);
  } else if (path.ends_with(".parquet")) {
    file_ = open_parquet(path, limits);
  } else if (packing_of(path) != Packing::kNone) {
    unpack(limits);
  } else if (is_table_text(path)) {
    file_ = open_table_text(path, limits);
  } else if (is_pipe(path)) {
    unpack(of_pipe(limits));
  } else {
    ByteSource::open(path, Packing::kNone);  // its checks and messages
    file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    check<DataError>(file_.get() >= 0, path, ": cannot open: ", errno_text);
  }
  index();
  check<DataError>(size() > 0 || may_be_empty, path, ": no rows");
}

void RowFile::unpack(const UnpackLimits& limits) {
  UnpackedFile out(path_, limits);
  LineReader reader(path_);
  std::string line;
  while (reader.next(line)) {
    line += '\n';
    out.write(line.data(), static_cast<int64_t>(line.size()));
  }
  file_ = out.release();
}

void RowFile::index() {
  std::vector<char> buffer(size_t{1} << 20);
  int64_t line_begin = 0, at = 0;
  bool blank = true;
  int32_t blanks = 0;
  const auto end_line = [&](int64_t next) {
    if (!blank) {
      begin_.push_back(line_begin);
      blank_before_.push_back(blanks);
    } else if (next > line_begin) {
      check<DataError>(blanks < INT32_MAX, path_, ": more than ", INT32_MAX, " blank lines");
      ++blanks;
    }
    line_begin = next;
    blank = true;
  };
  while (true) {
    const ssize_t n = ::pread(file_.get(), buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    check<DataError>(n >= 0, path_, ": cannot read: ", errno_text);
    if (n == 0) break;
    const std::string_view read(buffer.data(), static_cast<size_t>(n));
    const size_t first = at == 0 && read.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    for (size_t i = first; i < read.size(); ++i) {
      const char c = read[i];
      if (c == '\n')
        end_line(at + static_cast<int64_t>(i) + 1);
      else if (c != ' ' && c != '\t' && c != '\r')
        blank = false;
    }
    at += n;
  }
  end_ = at;
  end_line(at);
  if (blanks == 0) blank_before_ = {};
}

std::string RowFile::where(int64_t row) const {
  const int64_t blank =
      blank_before_.empty() ? 0 : int64_t{blank_before_[static_cast<size_t>(row)]};
  return str(path_, rows_are_lines_ ? ":" : ": row ", row + 1 + blank);
}

int64_t RowFile::row_bytes(int64_t row) const {
  const int64_t to = row + 1 < size() ? begin_[static_cast<size_t>(row + 1)] : end_;
  return to - begin_[static_cast<size_t>(row)];
}

std::string RowFile::line(int64_t row) const {
  const int64_t from = begin_[static_cast<size_t>(row)], to = from + row_bytes(row);
  std::string line;
  for (int64_t at = from; at < to;) {  // in pieces, as any number of blank lines may follow
    const size_t before = line.size();
    line.resize(before + static_cast<size_t>(std::min(to - at, kPiece)));
    const ssize_t n = ::pread(file_.get(), line.data() + before, line.size() - before, at);
    check<DataError>(n > 0 || (n < 0 && errno == EINTR), where(row),
                     ": cannot read; did the file change?");
    line.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    at += std::max<ssize_t>(n, 0);
    const size_t end = line.find('\n', before);
    if (end != std::string::npos) {
      line.resize(end);
      break;
    }
    check<DataError>(line.size() <= kMaxLineBytes, where(row), ": a line of more than 1 GiB");
  }
  // Of a later line, too: files that begin with one may have been put one behind the other.
  if (line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return line;
}

Json RowFile::row(int64_t row) const { return parse_row(line(row), where(row)); }

int64_t permuted(int64_t index, int64_t n, uint64_t seed, uint64_t source, uint64_t epoch) {
  const RandomStream stream(seed, RandomPurpose::kShuffle, source, epoch);
  const int half_bits =
      std::max<int>(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (stream.bits64(right << 3 | round) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits | right;
  } while (x >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(x);
}

}  // namespace temper::data
