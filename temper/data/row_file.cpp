#include "temper/data/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/data/jsonl.h"
#include "temper/data/parquet.h"

namespace temper::data {

RowFile::RowFile(const std::string& path) : path_(path) {
  if (path.ends_with(".parquet")) {
    fd_ = open_parquet(path);
  } else if (path.ends_with(".gz") || path.ends_with(".zst")) {
    unpack();
  } else {
    LineReader::open(path);  // its checks and messages
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check<DataError>(fd_ >= 0, path, ": cannot open: ", std::strerror(errno));
  }
  index();
  check<DataError>(size() > 0, path, ": no rows");
}

RowFile::~RowFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RowFile::unpack() {
  fd_ = open_temporary("temper-rows");
  const auto reader = LineReader::open(path_);
  std::string line;
  while (reader->next(line)) {
    line += '\n';
    for (size_t done = 0; done < line.size();) {
      const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
      check(n > 0 || errno == EINTR, path_,
            ": cannot unpack into a temporary file: ", std::strerror(errno), "; set TMPDIR");
      if (n > 0) done += static_cast<size_t>(n);
    }
  }
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
      ++blanks;
    }
    line_begin = next;
    blank = true;
  };
  while (true) {
    const ssize_t n = ::pread(fd_, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    check<DataError>(n >= 0, path_, ": cannot read: ", std::strerror(errno));
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      const char c = buffer[static_cast<size_t>(i)];
      if (c == '\n')
        end_line(at + i + 1);
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
  return temper::str(
      path_, ":",
      row + 1 +
          (blank_before_.empty() ? int64_t{0} : int64_t{blank_before_[static_cast<size_t>(row)]}));
}

Json RowFile::row(int64_t row) const {
  const int64_t from = begin_[static_cast<size_t>(row)];
  const int64_t to = row + 1 < size() ? begin_[static_cast<size_t>(row + 1)] : end_;
  std::string line(static_cast<size_t>(to - from), '\0');
  for (size_t done = 0; done < line.size();) {
    const ssize_t n =
        ::pread(fd_, line.data() + done, line.size() - done, from + static_cast<int64_t>(done));
    check<DataError>(n > 0 || (n < 0 && errno == EINTR), where(row),
                     ": cannot read; did the file change?");
    if (n > 0) done += static_cast<size_t>(n);
  }
  line.resize(std::min(line.find('\n'), line.size()));
  if (from == 0 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return parse_row(line, where(row));
}

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
