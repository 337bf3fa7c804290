#include "temper/rewards/pipes.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace temper::rewards {
namespace {

// A write to a process that is gone gives an error and no signal, in this thread alone.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoPipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    if (!sigismember(&before_, SIGPIPE)) sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

}  // namespace

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(s, 1e6)));
}

bool read_some(int fd, std::string& into, size_t most) {
  char bytes[4096];
  while (into.size() < most) {
    const ssize_t n = ::read(fd, bytes, sizeof bytes);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    into.append(bytes, static_cast<size_t>(n));
  }
  return true;
}

bool write_some(int fd, std::string& unsent) {
  if (unsent.empty()) return true;
  const NoPipeSignal quiet;
  const ssize_t n = ::write(fd, unsent.data(), unsent.size());
  if (n > 0) unsent.erase(0, static_cast<size_t>(n));
  return n >= 0 || errno != EPIPE;
}

std::vector<ProcessOptions::Limit> limits(const RewardSection& options) {
  std::vector<ProcessOptions::Limit> out;
  const auto add = [&](int resource, const std::optional<int64_t>& value) {
    rlimit now{RLIM_INFINITY, RLIM_INFINITY};
    ::getrlimit(static_cast<__rlimit_resource>(resource), &now);  // it cannot be raised
    if (value)
      out.push_back({resource, std::min<uint64_t>(static_cast<uint64_t>(*value), now.rlim_max)});
  };
  add(RLIMIT_AS, options.memory_bytes);
  add(RLIMIT_CPU, options.cpu_seconds);
  add(RLIMIT_FSIZE, options.file_bytes);
  add(RLIMIT_NOFILE, options.open_files);
  add(RLIMIT_NPROC, options.processes);
  return out;
}

}  // namespace temper::rewards
