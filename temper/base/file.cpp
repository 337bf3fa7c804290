#include "temper/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "temper/base/error.h"

namespace temper {
namespace {
struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

FileDescriptor open_regular(const std::string& path, struct stat& status) {
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  check<DataError>(file.fd >= 0, path, ": cannot open: ", std::strerror(errno));
  check<DataError>(::fstat(file.fd, &status) == 0, path, ": cannot stat: ", std::strerror(errno));
  check<DataError>(!S_ISDIR(status.st_mode), path, ": is a directory, expected a file");
  const int fd = file.fd;
  file.fd = -1;
  return {fd};
}
}  // namespace

std::string read_file(const std::string& path, size_t max_bytes) {
  struct stat status{};
  const FileDescriptor file = open_regular(path, status);
  std::string bytes;
  if (S_ISREG(status.st_mode)) {
    check<DataError>(static_cast<size_t>(status.st_size) <= max_bytes, path, ": ", status.st_size,
                     " bytes; at most ", max_bytes, " are read here");
    bytes.reserve(static_cast<size_t>(status.st_size));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    check<DataError>(n >= 0, path, ": cannot read: ", std::strerror(errno));
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    check<DataError>(bytes.size() <= max_bytes, path, ": more than ", max_bytes, " bytes");
  }
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  const std::string temporary = str(path, ".tmp-", ::getpid());
  {
    FileDescriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    check(file.fd >= 0, temporary, ": cannot create: ", std::strerror(errno));
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(file.fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      check(n > 0, temporary, ": cannot write: ", std::strerror(errno));
      done += static_cast<size_t>(n);
    }
    check(::fsync(file.fd) == 0, temporary, ": cannot sync: ", std::strerror(errno));
  }
  check(std::rename(temporary.c_str(), path.c_str()) == 0, path,
        ": cannot replace: ", std::strerror(errno));
}

int open_temporary(const std::string& prefix) {
  const char* directory = std::getenv("TMPDIR");
  std::string name = str(directory && *directory ? directory : "/tmp", "/", prefix, "-XXXXXX");
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  check(fd >= 0, name, ": cannot create: ", std::strerror(errno), "; set TMPDIR");
  ::unlink(name.c_str());
  return fd;
}

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  struct stat status{};
  const FileDescriptor file = open_regular(path, status);
  const size_t size = static_cast<size_t>(status.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    check<DataError>(mapped != MAP_FAILED, path, ": cannot map ", size,
                     " bytes: ", std::strerror(errno));
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace temper
