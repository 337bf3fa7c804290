// Directories for temporary files of other programs.
#pragma once

#include <cstdint>
#include <string>

namespace temper::process {

// TMPDIR/temper-worker-PID-XXXXXX, empty, of this user alone, removed with this object. Its owner
// holds a lock on it, which ends with the owner however it ends; the first directory that a program
// makes removes those whose owners are gone.
class ScratchDirectory {
 public:
  // Throws RunError where there is no place for it.
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

// Removes this user's directories of that name whose owner holds no lock and is no process of this
// machine any more. Returns how many.
int64_t remove_stale_scratch_directories();

}  // namespace temper::process
