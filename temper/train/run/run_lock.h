// The lock on a run's directory: the file .lock in it, held by flock(2) while the run's process
// lives, however it ends. It keeps the id of the run that the directory holds.
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

  // The id of the directory's run; empty: no run has begun there, or an older version's.
  const std::string& run_id() const { return run_id_; }
  // The same of a directory whose lock nobody takes.
  static std::string run_in(const std::string& directory);
  // Throws RunError.
  void set_run_id(const std::string& id);

  // Locks the directory that the config names now, as the same run. Throws ConfigError; nothing is
  // held then.
  void move_to(const RunConfig& config);
  // Makes the file again where it alone was removed; whether it was.
  bool make_again();

  // What became of the directory since set_run_id(): it is there, it or a part of it was removed,
  // or another run has its place. A file system that does not answer is no loss.
  enum class Place { kHeld, kRemoved, kAnothers };
  Place place() const;

 private:
  std::string directory_, run_id_;
  FileDescriptor file_;
};

// An id that no other run has.
std::string new_run_id();

// Whether a process holds the lock of a run's directory. False where the file system has no locks.
bool is_running(const std::string& directory);

}  // namespace temper::train
