// Compression of row files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace temper::data {

// The bytes of a .zst file (Zstandard) that LineReader (jsonl.h) reads back as
// `text`. Throws RunError.
std::string compress_zstd(std::string_view text);

// Compresses a file as it is written.
class Compressor {
 public:
  // For a path that ends with .gz or .zst; null: for others, whose bytes stay
  // as they are.
  static std::unique_ptr<Compressor> for_path(const std::string& path);
  virtual ~Compressor() = default;
  // What the file has next, after these bytes of the text. Throws RunError.
  virtual std::string add(std::string_view text) = 0;
  virtual std::string end() = 0;  // the rest of the file
};

}  // namespace temper::data
