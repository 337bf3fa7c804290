// Files as the rest of the program needs them: read whole, mapped, and written so that a crash
// leaves the old or the new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace temper {

// An open file's descriptor, which it closes; below 0: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { reset(-1); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }

  int get() const { return fd_; }
  void reset(int fd);
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

// Whether a name that others give is safe in a path: letters, digits, "-", "_" and "." alone, at
// most kLongestSafeName, and no "." first.
constexpr size_t kLongestSafeName = 128;
bool is_safe_name(std::string_view name);

// Files that are made where they are read: is_file() and read_file() take `m.gguf/config.json` for
// a GGUF file m.gguf, which is read as a directory of small files made from its contents, and files
// of a directory may be others than its own.
struct MadeFiles {
  bool (*stands)(const std::string& path) = nullptr;  // whether `path` has such files
  // Whether it has a file `name`; the contents of that.
  bool (*has)(const std::string& path, const std::string& name) = nullptr;
  std::string (*make)(const std::string& path, const std::string& name) = nullptr;
};
// Call before any thread is started.
void set_made_files(const MadeFiles& made);
// Whether `path` is a file that is read as a directory, or a directory with made files.
bool stands_for_directory(const std::string& path);
// Whether there is a regular file of this path, or one that is made.
bool is_file(const std::string& path);

// The whole file as bytes; also one that is made. Throws DataError naming the path and the cause,
// also when it is larger than max_bytes.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 32);

// A file that replaces `path` as a whole or not at all. Bytes go to an unnamed file, or, where the
// file system has none, to PATH.tmp-PID; commit() syncs it and renames it over `path`. Without
// commit() nothing is left. Temporary files of `path` that killed processes left are removed.
// Throws RunError.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, size_t size);
  void commit();  // once

 private:
  std::string path_, temporary_;
  FileDescriptor fd_;
  bool named_ = false;  // the temporary file has the name temporary_
};

// Writes an AtomicFile of these bytes.
void write_file_atomic(const std::string& path, std::string_view bytes);

// Writes all of the bytes to a descriptor. Throws RunError("WHAT: cannot write: CAUSE").
void write_all(int fd, const void* bytes, size_t size, const std::string& what);

// Writes at a place of the file, which other processes may be writing elsewhere.
void write_all_at(int fd, const void* bytes, size_t size, uint64_t place, const std::string& what);

// $TMPDIR, or /tmp.
std::string temporary_directory();

// A new file in temporary_directory() that has no name: it goes with its descriptor, however the
// process ends. Throws RunError.
FileDescriptor open_temporary(const std::string& prefix);

// The same in a directory. Where the file system has no unnamed files, it has the name
// PREFIX-XXXXXX for a moment; empty files of this prefix that killed processes left are removed.
// Throws RunError.
FileDescriptor open_temporary_in(const std::string& directory, const std::string& prefix);

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
