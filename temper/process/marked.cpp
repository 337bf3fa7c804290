#include "temper/process/marked.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace temper::process {
namespace {

constexpr int kRounds = 20;  // scans at most: processes may start others meanwhile

std::string whole_file(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char bytes[4096];
  for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(n));
  ::close(fd);
  return text;
}

bool has_variable(pid_t pid, const std::string& mark) {
  const std::string environment = whole_file("/proc/" + std::to_string(pid) + "/environ");
  std::string_view rest = environment;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    if (rest.substr(0, end) == mark) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// Signals through a process descriptor, so that the process that is killed is the one that was
// looked at and not a new one with the same number.
bool kill_if_marked(pid_t pid, const std::string& mark) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) {
    const bool killed =
        has_variable(pid, mark) && ::syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0) == 0;
    ::close(fd);
    return killed;
  }
#endif
  return has_variable(pid, mark) && ::kill(pid, SIGKILL) == 0;
}

}  // namespace

std::string new_mark() {
  static std::atomic<int64_t> count{0};
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  return "TEMPER_PROCESS=" + std::to_string(::getpid()) + "." + std::to_string(now) + "." +
         std::to_string(count++);
}

int64_t kill_marked(const std::string& mark) {
  int64_t killed = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
    if (!processes) return killed;
    int64_t now = 0;
    while (const dirent* entry = ::readdir(processes.get()))
      if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])))
        now += kill_if_marked(static_cast<pid_t>(std::atol(entry->d_name)), mark);
    if (now == 0) return killed;
    killed += now;
  }
  return killed;
}

}  // namespace temper::process
