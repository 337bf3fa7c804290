// The lock on a run's directory: the file .lock in it, held by flock(2) while the run's process
// lives, however it ends.
#pragma once

#include <string>

#include "temper/base/file.h"
#include "temper/train/config.h"

namespace temper::train {

class RunLock {
 public:
  // Throws ConfigError where another process holds it, or where the directory cannot be written to.
  // Where the file system has no locks, nothing is held.
  explicit RunLock(const RunConfig& config);

 private:
  FileDescriptor file_;
};

// Whether a process holds the lock of a run's directory. False where the file system has no locks.
bool is_running(const std::string& directory);

}  // namespace temper::train
