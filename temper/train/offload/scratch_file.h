// A file without a name for what leaves memory while a run lives, written and read ahead on a
// thread of its own. It is gone with the process, however that ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "temper/base/file.h"
#include "temper/base/work_queue.h"

namespace temper::train {

class ScratchFile {
 public:
  // In a directory that messages call `what` ("train.offload_dir /disk"). Throws RunError.
  ScratchFile(const std::string& directory, std::string what);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Takes the disk's space for the file's first bytes, which read as zeros until they are written.
  // Throws RunError where there is less.
  void reserve(int64_t bytes);
  // Gives the disk's space back; what was written is lost.
  void clear();

  // Jobs run in the order of these calls; `owner` keeps the memory until then. The future throws
  // RunError.
  std::future<void> write(const void* bytes, size_t count, int64_t place,
                          std::shared_ptr<const void> owner);
  std::future<void> read(void* bytes, size_t count, int64_t place,
                         std::shared_ptr<const void> owner);
  // Waits for one of them. Throws what it threw, or RunError for a disk that does not answer.
  void wait(std::future<void>& job);

 private:
  std::string what_;
  // The jobs' own, too: a disk that does not answer may hold one for longer than this lives.
  std::shared_ptr<const FileDescriptor> file_;
  std::unique_ptr<WorkQueue> queue_;
  std::atomic<bool> stuck_ = false;
};

}  // namespace temper::train
