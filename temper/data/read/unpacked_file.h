// Rows that are unpacked to a temporary file, within what the disk can hold.
#pragma once

#include <cstdint>
#include <string>

#include "temper/base/file.h"

namespace temper::data {

struct UnpackLimits {
  // Bytes that stay free where the temporary files lie; below 0: 1 GiB, or a twentieth of a smaller
  // disk.
  int64_t reserve_bytes = -1;
  // A file that unpacks to more than `ratio` times its size and to more than `ratio_from_bytes` was
  // made to fill disks. Rows of text become 3 to 30 times as long.
  int64_t ratio = 500;
  int64_t ratio_from_bytes = int64_t{4} << 30;
};

// A file without a name in TMPDIR, which goes with its descriptor however the process ends.
class UnpackedFile {
 public:
  // `packed` is the file that is unpacked; messages begin with it.
  explicit UnpackedFile(const std::string& packed, const UnpackLimits& limits = {});

  // Appends. Throws RunError where the disk would have less than the reserve left, DataError at the
  // ratio.
  void write(const char* bytes, int64_t size);
  // The file, at its begin. Nothing is written after.
  FileDescriptor release();

 private:
  void flush();
  void check_ratio(int64_t size) const;
  void check_space(int64_t more) const;
  std::string packed_;
  UnpackLimits limits_;
  int64_t packed_bytes_ = 0, written_ = 0, unchecked_ = 0;
  std::string buffer_;
  FileDescriptor file_;
};

}  // namespace temper::data
