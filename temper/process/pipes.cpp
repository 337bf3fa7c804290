#include "temper/process/pipes.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace temper::process {
namespace {

// A write to a process that is gone gives an error and no signal, in this thread alone.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    if (!sigismember(&before_, SIGPIPE)) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;  // that signal alone, and the thread's mask
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

void wait_for(std::vector<pollfd>& fds, Clock::time_point until) {
  const auto left = std::max<Clock::duration>(until - Clock::now(), Clock::duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec most{whole.count(), std::chrono::nanoseconds(left - whole).count()};
  ::ppoll(fds.data(), fds.size(), &most, nullptr);
}

}  // namespace temper::process
