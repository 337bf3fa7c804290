#include "temper/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace temper::train {
namespace {

// Whether another process holds a lock that excludes this one.
bool is_refused(const FileDescriptor& file, int lock) {
  return ::flock(file.get(), lock | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

RunLock::RunLock(const RunConfig& config) {
  const std::string path = config.output_dir + "/.lock";
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
}

bool is_running(const std::string& directory) {
  const FileDescriptor file(::open((directory + "/.lock").c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && is_refused(file, LOCK_SH);
}

}  // namespace temper::train
