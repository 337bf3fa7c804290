// The bytes of a file, unpacked as they are read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "temper/base/file.h"

namespace temper::data {

enum class Packing {
  kNone,
  kZlib,  // gzip, of one member or several, or a zlib stream
  kZstd
};

// By the file's ending: .gz or .zst.
Packing packing_of(const std::string& path);

class ByteSource {
 public:
  // Throws DataError, which begins with the path, as reading does.
  static std::unique_ptr<ByteSource> open(const std::string& path, Packing packing);
  // Packed as the name says, and where it does not, as `packing` says of the first bytes (up to
  // kHead). The file is opened once, so that a pipe may be read.
  static std::unique_ptr<ByteSource> open(const std::string& path,
                                          Packing (*packing)(std::string_view head));
  static constexpr size_t kHead = 64;
  // Of an open file, from where it stands; `path` begins messages.
  static std::unique_ptr<ByteSource> of(FileDescriptor file, const std::string& path);
  virtual ~ByteSource() = default;

  // Adds more bytes, about kChunk, at the end of `buffer`; false when there are none.
  virtual bool more(std::string& buffer) = 0;
};

}  // namespace temper::data
