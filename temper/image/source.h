// Where a row's image comes from, and the image itself before its pixels are decoded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "temper/image/image.h"

namespace temper {

// The struct `{bytes, path}` of Parquet files of `datasets`, or a text as rows spell it: a path or
// a data: URI.
struct ImageSource {
  std::string text = {};   // unread where there are bytes
  std::string bytes = {};  // a whole file
  bool is_base64 = false;  // `text` is a whole file
};

bool is_data_uri(std::string_view text);

// "png", "jpeg" or "webp", of the bytes of an image.
std::string image_kind(std::string_view bytes);

// The other way: a file's bytes as a data: URI.
std::string data_uri(std::string_view bytes);

// The file's bytes. A path is relative to `directory` unless it begins with "/". A data: URI must
// be base64 ("data:image/png;base64,.."). Throws DataError: an http or another URI, no such file,
// no regular file, more bytes than limits.max_bytes (before they are read or decoded).
std::string read_image_bytes(const ImageSource& source, const std::string& directory,
                             const ImageLimits& limits = {});

// An image whose header has been read. What came from a file is read again when its pixels are
// wanted; what came otherwise is kept.
class Image {
 public:
  // `row` says whose image it is ("FILE:LINE: image 1"): messages of bytes() and decode(), which
  // are called when nobody knows it any more, begin with it. Throws DataError as read_image_bytes()
  // and read_image_size() do.
  static std::shared_ptr<const Image> open(const ImageSource& source, const std::string& directory,
                                           const ImageLimits& limits = {}, std::string row = {});

  const ImageSize& size() const { return size_; }
  // SHA-256 of the file's bytes, hexadecimal: two images of one digest have the same pixels.
  const std::string& digest() const { return digest_; }
  int64_t file_bytes() const { return file_bytes_; }
  // Empty where the image came from a data: URI or as bytes.
  const std::string& path() const { return path_; }
  // What opens it again from anywhere on this machine: its absolute path, or a data: URI.
  std::string source() const;

  // The file's bytes. Throws DataError where the file is no longer the one that was opened.
  std::string bytes() const;
  Picture decode() const;

 private:
  ImageSize size_;
  ImageLimits limits_;
  std::string digest_, path_, bytes_;
  int64_t file_bytes_ = 0;
  std::string row_;  // what messages begin with; may be empty
};

}  // namespace temper
