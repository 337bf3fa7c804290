#include "temper/data/read/compress.h"

#include <zlib.h>
#include <zstd.h>

#include "temper/base/error.h"

namespace temper::data {

std::string compress_zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const size_t size =
      ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), ZSTD_CLEVEL_DEFAULT);
  check(!ZSTD_isError(size), "zstd: cannot compress: ", ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

namespace {

constexpr size_t kPacked = size_t{1} << 16;  // bytes that are taken from a compressor at once
constexpr int kGzip = 15 + 16;               // zlib's window bits for the gzip format

class GzipCompressor : public Compressor {
 public:
  GzipCompressor() {
    check(deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) ==
              Z_OK,
          "zlib: cannot start");
  }
  ~GzipCompressor() override { deflateEnd(&stream_); }

  std::string add(std::string_view text) override { return run(text, Z_NO_FLUSH); }
  std::string end() override { return run({}, Z_FINISH); }

 private:
  std::string run(std::string_view text, int flush) {
    std::string out;
    // zlib does not write to what it reads.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      const size_t before = out.size();
      out.resize(before + kPacked);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream_.avail_out = kPacked;
      const int status = deflate(&stream_, flush);
      check(status != Z_STREAM_ERROR, "zlib: cannot compress");
      out.resize(before + kPacked - stream_.avail_out);
    } while (stream_.avail_out == 0);
    return out;
  }
  z_stream stream_{};
};

class ZstdCompressor : public Compressor {
 public:
  ZstdCompressor() : stream_(ZSTD_createCCtx()) {
    check(stream_ != nullptr, "zstd: cannot start");
    ZSTD_CCtx_setParameter(stream_, ZSTD_c_checksumFlag, 1);
  }
  ~ZstdCompressor() override { ZSTD_freeCCtx(stream_); }

  std::string add(std::string_view text) override { return run(text, ZSTD_e_continue); }
  std::string end() override { return run({}, ZSTD_e_end); }

 private:
  std::string run(std::string_view text, ZSTD_EndDirective directive) {
    std::string out;
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    while (true) {
      const size_t before = out.size();
      out.resize(before + kPacked);
      ZSTD_outBuffer to{out.data() + before, kPacked, 0};
      const size_t left = ZSTD_compressStream2(stream_, &to, &in, directive);
      check(!ZSTD_isError(left), "zstd: cannot compress: ", ZSTD_getErrorName(left));
      out.resize(before + to.pos);
      const bool done = directive == ZSTD_e_end ? left == 0 : in.pos == in.size;
      if (done) return out;
    }
  }
  ZSTD_CCtx* stream_;
};

}  // namespace

std::unique_ptr<Compressor> Compressor::for_path(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipCompressor>();
  if (path.ends_with(".zst")) return std::make_unique<ZstdCompressor>();
  return nullptr;
}

}  // namespace temper::data
