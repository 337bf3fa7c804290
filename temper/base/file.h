// Files as the rest of the program needs them: read whole, mapped, and written so that a crash
// leaves the old or the new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace temper {

// The whole file as bytes. Throws DataError naming the path and the cause, also when it is larger
// than max_bytes.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 32);

// Writes to a temporary file beside `path`, syncs it, and renames it over `path`. Throws RunError.
void write_file_atomic(const std::string& path, std::string_view bytes);

// A descriptor, for the caller to close, of a new file in TMPDIR that has no name left: it goes
// when the process does. Throws RunError.
int open_temporary(const std::string& prefix);

// A read-only private mapping of a file; the bytes live as long as the object. Throws DataError.
class MappedFile {
 public:
  static std::shared_ptr<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace temper
