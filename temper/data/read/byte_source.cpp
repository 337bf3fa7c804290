#include "temper/data/read/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"

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

class PlainSource : public ByteSource {
 public:
  // `head` has been read of the file already.
  PlainSource(std::string path, File file, std::string_view head = {})
      : path_(std::move(path)), file_(std::move(file)), head_(head) {}

  bool more(std::string& buffer) override {
    if (!head_.empty()) {
      buffer += std::exchange(head_, {});
      return true;
    }
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    const size_t n = read_some(file_.get(), buffer.data() + before, kChunk, path_);
    buffer.resize(before + n);
    return n > 0;
  }

 private:
  const std::string path_;
  File file_;
  std::string head_;
};

class ZlibSource : public ByteSource {
 public:
  // `head` has been read of the file already.
  ZlibSource(const std::string& path, File file, std::string_view head = {})
      : path_(path), file_(std::move(file)) {
    stream_.next_in = reinterpret_cast<Bytef*>(in_);
    stream_.avail_in = static_cast<uInt>(head.copy(in_, sizeof in_));
    check(inflateInit2(&stream_, 15 + 32) == Z_OK, "zlib: cannot start");
  }
  ~ZlibSource() override { inflateEnd(&stream_); }

  bool more(std::string& buffer) override {
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data() + before);
    stream_.avail_out = kChunk;
    while (stream_.avail_out == kChunk) {
      if (stream_.avail_in == 0) {
        stream_.avail_in = static_cast<uInt>(read_some(file_.get(), in_, sizeof in_, path_));
        stream_.next_in = reinterpret_cast<Bytef*>(in_);
        if (stream_.avail_in == 0) {
          check<DataError>(ended_, path_, ": the gzip stream is cut short");
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
      check<DataError>(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, path_,
                       ": not valid gzip: ", stream_.msg ? stream_.msg : "corrupt data");
      ended_ = status == Z_STREAM_END;
    }
    buffer.resize(before + kChunk - stream_.avail_out);
    return buffer.size() > before;
  }

 private:
  const std::string path_;
  File file_;
  z_stream stream_{};
  bool ended_ = false;
  char in_[1 << 16];
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const std::string& path)
      : path_(path), file_(open_file(path)), stream_(ZSTD_createDStream()) {
    check(stream_ != nullptr, "zstd: cannot start");
    // A frame may ask for a window of any size; this much is what zstd itself accepts by default.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 27);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  bool more(std::string& buffer) override {
    const size_t before = buffer.size();
    buffer.resize(before + kChunk);
    ZSTD_outBuffer out{buffer.data() + before, kChunk, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        in_ = {bytes_, read_some(file_.get(), bytes_, sizeof bytes_, path_), 0};
        if (in_.size == 0) {
          check<DataError>(ended_, path_, ": the zstd stream is cut short");
          break;
        }
      }
      const size_t status = ZSTD_decompressStream(stream_, &out, &in_);
      check<DataError>(!ZSTD_isError(status), path_,
                       ": not valid zstd: ", ZSTD_getErrorName(status));
      ended_ = status == 0;
    }
    buffer.resize(before + out.pos);
    return out.pos > 0;
  }

 private:
  const std::string path_;
  File file_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool ended_ = true;
  char bytes_[1 << 16];
};

}  // namespace

Packing packing_of(const std::string& path) {
  if (path.ends_with(".gz")) return Packing::kZlib;
  return path.ends_with(".zst") ? Packing::kZstd : Packing::kNone;
}

std::unique_ptr<ByteSource> ByteSource::open(const std::string& path, Packing packing) {
  if (packing == Packing::kZlib) return std::make_unique<ZlibSource>(path, open_file(path));
  if (packing == Packing::kZstd) return std::make_unique<ZstdSource>(path);
  return std::make_unique<PlainSource>(path, open_file(path));
}

std::unique_ptr<ByteSource> ByteSource::open(const std::string& path,
                                             Packing (*packing)(std::string_view head)) {
  if (packing_of(path) != Packing::kNone) return open(path, packing_of(path));
  File file = open_file(path);
  char bytes[kHead];
  const std::string_view head(bytes, read_some(file.get(), bytes, sizeof bytes, path));
  if (packing(head) == Packing::kZlib)
    return std::make_unique<ZlibSource>(path, std::move(file), head);
  return std::make_unique<PlainSource>(path, std::move(file), head);
}

std::unique_ptr<ByteSource> ByteSource::of(FileDescriptor file, const std::string& path) {
  File opened(::fdopen(file.get(), "rb"));
  check(opened != nullptr, path, ": cannot read its rows: ", errno_text);
  file.release();
  return std::make_unique<PlainSource>(path, std::move(opened));
}

}  // namespace temper::data
