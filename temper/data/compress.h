// Compression of row files.
#pragma once

#include <string>
#include <string_view>

namespace temper::data {

// The bytes of a .zst file (Zstandard) that LineReader (jsonl.h) reads back as `text`. Throws
// RunError.
std::string compress_zstd(std::string_view text);

}  // namespace temper::data
