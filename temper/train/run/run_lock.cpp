#include "temper/train/run/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "temper/base/error.h"

namespace temper::train {
namespace {

constexpr size_t kIdDigits = 16;

// Whether another process holds a lock that excludes this one.
bool is_refused(const FileDescriptor& file, int lock) {
  return ::flock(file.get(), lock | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// What begins the file, if it is an id.
std::string id_in(const FileDescriptor& file) {
  std::array<char, kIdDigits> text{};
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string id(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  const bool whole =
      id.size() == kIdDigits && id.find_first_not_of("0123456789abcdef") == std::string::npos;
  return whole ? id : "";
}

bool is_missing(const std::string& path) {
  struct stat about{};
  return ::stat(path.c_str(), &about) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

}  // namespace

RunLock::RunLock(const RunConfig& config) : directory_(config.output_dir) {
  const std::string path = directory_ + "/.lock";
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  config.require(file_.get() >= 0, "output_dir", "cannot write to ", config.output_dir, ": ",
                 std::strerror(errno));
  // Whoever asks is_running() has the lock for a moment.
  bool held = is_refused(file_, LOCK_EX);
  for (int tries = 0; held && tries < 10; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held = is_refused(file_, LOCK_EX);
  }
  config.require(!held, "output_dir", "another run is writing to ", config.output_dir);
  run_id_ = id_in(file_);
}

std::string RunLock::run_in(const std::string& directory) {
  const FileDescriptor file(::open((directory + "/.lock").c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 ? id_in(file) : "";
}

void RunLock::set_run_id(const std::string& id) {
  if (id == run_id_) return;
  const std::string line = id + "\n";
  const ssize_t written = ::pwrite(file_.get(), line.data(), line.size(), 0);
  check(written == static_cast<ssize_t>(line.size()), directory_,
        "/.lock: cannot write: ", written < 0 ? std::strerror(errno) : "the disk is full");
  run_id_ = id;
}

void RunLock::move_to(const RunConfig& config) {
  file_.reset(-1);  // the directory may be the same
  RunLock lock(config);
  lock.set_run_id(run_id_);
  *this = std::move(lock);
}

bool RunLock::make_again() {
  const std::string path = directory_ + "/.lock";
  if (!is_missing(path) || is_missing(directory_ + "/config.yaml")) return false;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0 || is_refused(file, LOCK_EX)) return false;
  file_ = std::move(file);
  const std::string id = std::exchange(run_id_, "");
  set_run_id(id);
  return true;
}

// The file's content says whose it is: some file systems change the numbers of their files.
RunLock::Place RunLock::place() const {
  const std::string path = directory_ + "/.lock";
  if (is_missing(path)) return Place::kRemoved;
  const FileDescriptor now(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (now.get() < 0) return Place::kHeld;
  // Empty: another run locked it, and has not begun.
  struct stat about{};
  const bool empty = ::fstat(now.get(), &about) == 0 && about.st_size == 0;
  const std::string id = id_in(now);
  if (empty || (!id.empty() && id != run_id_)) return Place::kAnothers;
  return is_missing(directory_ + "/config.yaml") ? Place::kRemoved : Place::kHeld;
}

std::string new_run_id() {
  std::random_device device;
  std::string id;
  while (id.size() < kIdDigits) id += "0123456789abcdef"[device() % 16];
  return id;
}

bool is_running(const std::string& directory) {
  const FileDescriptor file(::open((directory + "/.lock").c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && is_refused(file, LOCK_SH);
}

}  // namespace temper::train
