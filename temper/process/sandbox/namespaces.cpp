#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "temper/process/sandbox/steps.h"

namespace temper::sandbox {
namespace {

struct Kind {
  int flag;
  const char* name;
};
// User namespaces first: they give the right to make the others.
constexpr Kind kKinds[] = {{CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mount"},
                           {CLONE_NEWPID, "pid"},   {CLONE_NEWIPC, "ipc"},
                           {CLONE_NEWUTS, "uts"},   {CLONE_NEWNET, "network"}};

struct Switch {
  const char *path, *name;
  int forbids;
};
constexpr Switch kSwitches[] = {
    {"/proc/sys/user/max_user_namespaces", "user.max_user_namespaces", 0},
    {"/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", 0},
    {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
     "kernel.apparmor_restrict_unprivileged_userns", 1}};

// Which setting of the system forbids them.
const char* cause() {
  static char text[160];
  const int error = errno;
  for (const Switch& s : kSwitches) {
    std::FILE* file = std::fopen(s.path, "re");
    int value = -1;
    if (file && std::fscanf(file, "%d", &value) == 1 && value == s.forbids)
      std::snprintf(text, sizeof text, " (sysctl %s is %d)", s.name, value);
    if (file) std::fclose(file);
    if (*text) break;
  }
  errno = error;
  if (*text) return text;
  return error == EPERM ? " (a container's seccomp profile may forbid them, as Docker's does)" : "";
}

void write_file(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  const auto size = static_cast<ssize_t>(std::strlen(text));
  if (fd < 0) fail("cannot write", path, cause());
  const ssize_t written = ::write(fd, text, std::strlen(text));
  if (written >= 0 && written < size) errno = EIO;
  if (written != size) fail("cannot write", path, cause());
  ::close(fd);
}

void map_itself(const char* path, unsigned id) {
  char line[64];
  std::snprintf(line, sizeof line, "%u %u 1", id, id);
  write_file(path, line);
}

void start_loopback() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  if (fd < 0 || ::ioctl(fd, SIOCSIFFLAGS, &loopback) != 0) fail("cannot start the loopback device");
  ::close(fd);
}

}  // namespace

void fail(const char* what, const char* subject, const char* hint) {
  char text[512];
  std::snprintf(text, sizeof text, "temper-sandbox: %s%s%s: %s%s\n", what, *subject ? " " : "",
                subject, std::strerror(errno), hint);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(kNotPossible);
}

void enter_namespaces(bool network) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  for (const Kind& kind : kKinds) {
    if (kind.flag == CLONE_NEWNET && network) continue;
    if (::unshare(kind.flag) == 0) continue;
    fail("the system allows no new namespace of the kind", kind.name, cause());
  }
  write_file("/proc/self/setgroups", "deny");
  map_itself("/proc/self/uid_map", user);
  map_itself("/proc/self/gid_map", group);
  if (!network) start_loopback();
}

}  // namespace temper::sandbox
