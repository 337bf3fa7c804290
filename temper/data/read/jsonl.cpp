#include "temper/data/read/jsonl.h"

#include <zlib.h>
#include <zstd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/data/read/parquet.h"
#include "temper/data/read/table_text.h"

namespace temper::data {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_file(const std::string& path) {
  std::error_code ignored;
  check<DataError>(!std::filesystem::is_directory(path, ignored), path,
                   ": is a directory, expected a file of rows");
  File file(std::fopen(path.c_str(), "rbe"));
  check<DataError>(file != nullptr, path, ": cannot open: ", errno_text);
  return file;
}

size_t read_some(std::FILE* file, char* to, size_t size, const std::string& path) {
  const size_t n = std::fread(to, 1, size, file);
  check<DataError>(n > 0 || !std::ferror(file), path, ": cannot read: ", errno_text);
  return n;
}

class PlainReader : public LineReader {
 public:
  PlainReader(const std::string& path, File file) : LineReader(path), file_(std::move(file)) {}

 private:
  bool more(std::string& buffer) override {
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    const size_t n = read_some(file_.get(), buffer.data() + before, kChunk, path());
    buffer.resize(before + n);
    return n > 0;
  }
  File file_;
};

class GzipReader : public LineReader {
 public:
  explicit GzipReader(const std::string& path) : LineReader(path), file_(open_file(path)) {
    check(inflateInit2(&stream_, 15 + 32) == Z_OK, "zlib: cannot start");
  }
  ~GzipReader() override { inflateEnd(&stream_); }

 private:
  bool more(std::string& buffer) override {
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data() + before);
    stream_.avail_out = kChunk;
    while (stream_.avail_out == kChunk) {
      if (stream_.avail_in == 0) {
        stream_.avail_in = static_cast<uInt>(read_some(file_.get(), in_, sizeof in_, path()));
        stream_.next_in = reinterpret_cast<Bytef*>(in_);
        if (stream_.avail_in == 0) {
          check<DataError>(ended_, path(), ": the gzip stream is cut short");
          break;
        }
        if (ended_) {  // a further member
          inflateReset(&stream_);
          ended_ = false;
        }
      } else if (ended_) {
        inflateReset(&stream_);
        ended_ = false;
      }
      const int status = inflate(&stream_, Z_NO_FLUSH);
      check<DataError>(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, path(),
                       ": not valid gzip: ", stream_.msg ? stream_.msg : "corrupt data");
      ended_ = status == Z_STREAM_END;
    }
    buffer.resize(before + kChunk - stream_.avail_out);
    return buffer.size() > before;
  }
  File file_;
  z_stream stream_{};
  bool ended_ = false;
  char in_[1 << 16];
};

class ZstdReader : public LineReader {
 public:
  explicit ZstdReader(const std::string& path)
      : LineReader(path), file_(open_file(path)), stream_(ZSTD_createDStream()) {
    check(stream_ != nullptr, "zstd: cannot start");
    // A frame may ask for a window of any size; this much is what zstd itself accepts by default.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 27);
  }
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }

 private:
  bool more(std::string& buffer) override {
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    ZSTD_outBuffer out{buffer.data() + before, kChunk, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        in_ = {bytes_, read_some(file_.get(), bytes_, sizeof bytes_, path()), 0};
        if (in_.size == 0) {
          check<DataError>(ended_, path(), ": the zstd stream is cut short");
          break;
        }
      }
      const size_t status = ZSTD_decompressStream(stream_, &out, &in_);
      check<DataError>(!ZSTD_isError(status), path(),
                       ": not valid zstd: ", ZSTD_getErrorName(status));
      ended_ = status == 0;
    }
    buffer.resize(before + out.pos);
    return out.pos > 0;
  }
  File file_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool ended_ = true;
  char bytes_[1 << 16];
};

}  // namespace

std::unique_ptr<LineReader> LineReader::open(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipReader>(path);
  if (path.ends_with(".zst")) return std::make_unique<ZstdReader>(path);
  if (path.ends_with(".parquet") || is_table_text(path)) {
    FileDescriptor rows = path.ends_with(".parquet") ? open_parquet(path) : open_table_text(path);
    File lines(::fdopen(rows.get(), "rb"));
    check(lines != nullptr, path, ": cannot read its rows: ", errno_text);
    rows.release();
    return std::make_unique<PlainReader>(path, std::move(lines));
  }
  return std::make_unique<PlainReader>(path, open_file(path));
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
    if (more(buffer_)) continue;
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
  while (lines_->next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    row = parse_row(line, where());
    return true;
  }
  return false;
}

std::string RowReader::where() const {
  return str(lines_->path(), rows_are_lines_ ? ":" : ": row ", lines_->line_number());
}

bool rows_are_lines(const std::string& path) {
  return !path.ends_with(".parquet") && !(path.ends_with(".json") && is_table_text(path));
}

}  // namespace temper::data
