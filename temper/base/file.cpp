#include "temper/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"

namespace temper {
namespace {
// What a shell hands over by `<(command)` or as /dev/stdin: it may be a pipe. A pipe of any other
// name would wait for a writer, who may never come.
bool is_given_by_shell(const std::string& path) {
  for (const std::string_view begin : {"/dev/fd/", "/proc/self/fd/"})
    if (path.starts_with(begin) && path.size() > begin.size())
      return path.find_first_not_of("0123456789", begin.size()) == path.npos;
  return path == "/dev/stdin" || path == "/dev/null";
}

FileDescriptor open_regular(const std::string& path, struct stat& status, bool may_be_pipe) {
  const bool pipe = may_be_pipe && is_given_by_shell(path);
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? 0 : O_NONBLOCK)));
  check<DataError>(file.get() >= 0, path, ": cannot open: ", errno_text);
  check<DataError>(::fstat(file.get(), &status) == 0, path, ": cannot stat: ", errno_text);
  check<DataError>(!S_ISDIR(status.st_mode), path, ": is a directory, expected a file");
  check<DataError>(pipe || S_ISREG(status.st_mode), path,
                   ": is a pipe, a socket or a device, expected a regular file");
  return file;
}
}  // namespace

bool is_safe_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestSafeName && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

void FileDescriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

namespace {

MadeFiles& made_files() {
  static MadeFiles made;
  return made;
}

// The parts of the path of a file that is made; nullopt: it is none.
std::optional<std::pair<std::string, std::string>> parts_of_made(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos || slash == 0 || !made_files().stands) return {};
  std::pair<std::string, std::string> parts{path.substr(0, slash), path.substr(slash + 1)};
  if (!stands_for_directory(parts.first) || !made_files().has(parts.first, parts.second)) return {};
  return parts;
}

}  // namespace

void set_made_files(const MadeFiles& made) { made_files() = made; }

bool stands_for_directory(const std::string& path) {
  return made_files().stands && made_files().stands(path);
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) || parts_of_made(path);
}

std::string read_file(const std::string& path, size_t max_bytes) {
  if (const auto made = parts_of_made(path)) {
    std::string text = made_files().make(made->first, made->second);
    check<DataError>(text.size() <= max_bytes, path, ": ", text.size(), " bytes; at most ",
                     max_bytes, " are read here");
    return text;
  }
  struct stat status{};
  const FileDescriptor file = open_regular(path, status, true);
  std::string bytes;
  if (S_ISREG(status.st_mode)) {
    check<DataError>(static_cast<size_t>(status.st_size) <= max_bytes, path, ": ", status.st_size,
                     " bytes; at most ", max_bytes, " are read here");
    bytes.reserve(static_cast<size_t>(status.st_size));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    check<DataError>(n >= 0, path, ": cannot read: ", errno_text);
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    check<DataError>(bytes.size() <= max_bytes, path, ": more than ", max_bytes, " bytes");
  }
}

namespace {

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string link_of(int fd) { return str("/proc/self/fd/", fd); }

// Opens an unnamed file in the directory; -1 where the file system or the kernel does not support
// it. A process that is killed then leaves nothing.
int open_unnamed(const std::string& directory, int flags, mode_t mode) {
  if (::access("/proc/self/fd", X_OK) != 0) return -1;  // needed to give the file its name
  return ::open(directory.c_str(), flags | O_TMPFILE | O_CLOEXEC, mode);
}

// Removes PATH.tmp-PID of every process that no longer exists.
void remove_stale(const std::string& path) {
  const std::string stem = std::filesystem::path(path).filename().string() + ".tmp-";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory_of(path), none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem)) continue;
    pid_t pid = 0;
    const char* end = name.data() + name.size();
    const auto number = std::from_chars(name.data() + stem.size(), end, pid);
    if (number.ec != std::errc() || number.ptr != end || pid <= 0) continue;
    if (::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(entry.path().c_str());
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), temporary_(str(path, ".tmp-", ::getpid())) {
  fd_.reset(open_unnamed(directory_of(path), O_WRONLY, 0644));
  if (fd_.get() >= 0) return;
  named_ = true;
  fd_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  check(fd_.get() >= 0, temporary_, ": cannot create: ", errno_text);
}

AtomicFile::~AtomicFile() {
  if (named_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, size_t size) { write_all(fd_.get(), bytes, size, path_); }

void AtomicFile::commit() {
  check(::fsync(fd_.get()) == 0, path_, ": cannot sync: ", errno_text);
  if (!named_) {
    const auto give_name = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, link_of(fd_.get()).c_str(), AT_FDCWD, name.c_str(),
                      AT_SYMLINK_FOLLOW) == 0;
    };
    if (give_name(path_)) return remove_stale(path_);  // nothing was there to replace
    ::unlink(temporary_.c_str());
    check(give_name(temporary_), temporary_, ": cannot create: ", errno_text);
    named_ = true;
  }
  check(std::rename(temporary_.c_str(), path_.c_str()) == 0, path_,
        ": cannot replace: ", errno_text);
  named_ = false;
  remove_stale(path_);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

void write_all(int fd, const void* bytes, size_t size, const std::string& what) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, what, ": cannot write: ", std::strerror(n < 0 ? errno : ENOSPC));
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void write_all_at(int fd, const void* bytes, size_t size, uint64_t place, const std::string& what) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, at, size, static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, what, ": cannot write: ", std::strerror(n < 0 ? errno : ENOSPC));
    at += n;
    place += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
}

std::string temporary_directory() {
  const char* directory = std::getenv("TMPDIR");
  return directory && *directory ? directory : "/tmp";
}

namespace {

FileDescriptor open_without_name(const std::string& directory, const std::string& prefix,
                                 const char* hint) {
  FileDescriptor file(open_unnamed(directory, O_RDWR | O_EXCL, 0600));
  if (file.get() >= 0) return file;
  std::string name = str(directory, "/", prefix, "-XXXXXX");
  file.reset(::mkostemp(name.data(), O_CLOEXEC));
  check(file.get() >= 0, name, ": cannot create: ", errno_text, hint);
  ::unlink(name.c_str());
  return file;
}

}  // namespace

FileDescriptor open_temporary(const std::string& prefix) {
  return open_without_name(temporary_directory(), prefix, "; set TMPDIR");
}

FileDescriptor open_temporary_in(const std::string& directory, const std::string& prefix) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const bool left = entry.path().filename().string().starts_with(prefix + "-");
    if (left && entry.is_regular_file(none) && entry.file_size(none) == 0)
      std::filesystem::remove(entry.path(), none);
  }
  return open_without_name(directory, prefix, "");
}

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  struct stat status{};
  const FileDescriptor file = open_regular(path, status, false);
  const size_t size = static_cast<size_t>(status.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    check<DataError>(mapped != MAP_FAILED, path, ": cannot map ", size, " bytes: ", errno_text);
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace temper
