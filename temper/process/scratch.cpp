#include "temper/process/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "temper/base/error.h"

namespace temper::process {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "temper-worker-";
constexpr int kAttempts = 10;

fs::path temporary_files() {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error);
  check(!error, "TMPDIR names no directory: ", error.message());
  return path;
}

int open_directory(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// The process of "temper-worker-PID-XXXXXX"; 0: another name.
pid_t owner(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '-';
  return whole && pid > 0 ? pid : 0;
}

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

}  // namespace

ScratchDirectory::ScratchDirectory() {
  static std::once_flag once;
  std::call_once(once, remove_stale_scratch_directories);
  const std::string pattern =
      (temporary_files() / temper::str(kPrefix, ::getpid(), "-XXXXXX")).string();
  for (int i = 0; i < kAttempts; ++i) {
    path_ = pattern;
    check(::mkdtemp(path_.data()) != nullptr,
          "cannot make a temporary directory for another program: ", path_, ": ",
          std::strerror(errno));
    lock_ = open_directory(path_);
    struct stat held{}, named{};
    if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);  // where there are no locks, none is stale
    // A program in another container, to which this process is none, may have removed it between.
    if (lock_ >= 0 && ::fstat(lock_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino)
      return;
    if (lock_ >= 0) ::close(lock_);
  }
  throw RunError(temper::str("cannot keep a temporary directory for another program: ", path_));
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

int64_t remove_stale_scratch_directories() {
  int64_t removed = 0;
  std::error_code ignored;
  for (fs::directory_iterator entry(temporary_files(), ignored), end; entry != end;
       entry.increment(ignored)) {
    const pid_t pid = owner(entry->path().filename().string());
    if (pid == 0 || is_alive(pid)) continue;
    const std::string path = entry->path().string();
    const int fd = open_directory(path);
    if (fd < 0) continue;
    struct stat info{};
    if (::fstat(fd, &info) == 0 && info.st_uid == ::geteuid() &&
        ::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      fs::remove_all(path, ignored);
      ++removed;
    }
    ::close(fd);
  }
  return removed;
}

}  // namespace temper::process
