#include "temper/train/offload/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "temper/base/error.h"
#include "temper/metrics/trace.h"

namespace temper::train {
namespace {

// Far more than any disk needs for one tensor.
constexpr std::chrono::minutes kLongestWait{10};

void read_all_at(int fd, void* bytes, size_t size, int64_t place, const std::string& what) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::pread(fd, at, size, static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, what, ": cannot read: ", n < 0 ? std::strerror(errno) : "the file ends too early");
    at += n;
    place += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory, std::string what)
    : what_(std::move(what)),
      file_(
          std::make_shared<const FileDescriptor>(open_temporary_in(directory, ".temper-offload"))),
      queue_(std::make_unique<WorkQueue>(
          WorkQueueOptions{.at_end = WorkQueueOptions::AtEnd::kDrop,
                           .on_start = [] { trace::name_thread("offload"); }})) {}

ScratchFile::~ScratchFile() {
  if (!stuck_) return;
  queue_->stop();
  (void)queue_.release();  // its thread cannot be joined
}

void ScratchFile::reserve(int64_t bytes) {
  if (bytes == 0) return;
  const int failed = ::posix_fallocate(file_->get(), 0, static_cast<off_t>(bytes));
  check(failed == 0, what_, ": no room for ", bytes, " bytes: ", std::strerror(failed),
        "; another train.offload_dir may have more");
}

void ScratchFile::clear() {
  if (!stuck_) queue_->run([] {}).wait();  // writes that were begun before
  check(::ftruncate(file_->get(), 0) == 0, what_, ": cannot truncate: ", std::strerror(errno));
}

std::future<void> ScratchFile::write(const void* bytes, size_t count, int64_t place,
                                     std::shared_ptr<const void> owner) {
  return queue_->run([=, file = file_, what = what_, owner = std::move(owner)] {
    write_all_at(file->get(), bytes, count, static_cast<uint64_t>(place), what);
  });
}

std::future<void> ScratchFile::read(void* bytes, size_t count, int64_t place,
                                    std::shared_ptr<const void> owner) {
  return queue_->run([=, file = file_, what = what_, owner = std::move(owner)] {
    read_all_at(file->get(), bytes, count, place, what);
  });
}

void ScratchFile::wait(std::future<void>& job) {
  if (!job.valid()) return;
  if (stuck_ || job.wait_for(kLongestWait) != std::future_status::ready) {
    stuck_ = true;
    throw RunError(
        str(what_, ": the disk has not answered for ", kLongestWait.count(), " minutes"));
  }
  job.get();
}

}  // namespace temper::train
