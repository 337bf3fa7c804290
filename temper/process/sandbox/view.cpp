// New mounts that the system's calls make are private to this process's namespace. Only numbers of
// system calls are used, so that no new C library is needed; the kernel has them since 5.12.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "temper/process/sandbox/steps.h"

namespace temper::sandbox {
namespace {

// The same numbers on all architectures.
constexpr long kOpenTree = 428, kMoveMount = 429, kMountSetattr = 442;
constexpr unsigned kCloneTree = 1, kFromDescriptor = 4;           // OPEN_TREE_, MOVE_MOUNT_
constexpr unsigned kRecursive = 0x8000;                           // AT_RECURSIVE
constexpr uint64_t kReadOnly = 1, kNoSetuid = 2, kNoDevices = 4;  // MOUNT_ATTR_

constexpr const char* kProcHint =
    " (the system's /proc has parts mounted over, as in a container; a process may then not mount "
    "a /proc of its own)";

struct Attributes {
  uint64_t set, clear, propagation, user_namespace;
};

void change_mount(const char* path, unsigned flags, uint64_t set, uint64_t clear) {
  const Attributes attributes{set, clear, 0, 0};
  if (::syscall(kMountSetattr, AT_FDCWD, path, flags, &attributes, sizeof attributes) != 0)
    fail(clear ? "cannot make writable:" : "cannot make read-only:", path,
         " (mount_setattr, Linux 5.12)");
}

void mount_new(const char* kind, const char* path, unsigned long flags, const char* options,
               const char* hint = "") {
  if (::mount(kind, path, kind, flags, options) != 0) fail("cannot mount", path, hint);
}

struct Device {
  const char* path;
  int tree;  // a mount of the device alone, not attached yet
};

void open_devices(Device* devices, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    devices[i].tree =
        static_cast<int>(::syscall(kOpenTree, AT_FDCWD, devices[i].path, kCloneTree | O_CLOEXEC));
    if (devices[i].tree < 0) fail("cannot open", devices[i].path);
  }
}

void make_devices(const Device* devices, size_t count) {
  mount_new("tmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k");
  for (size_t i = 0; i < count; ++i) {
    const int fd = ::open(devices[i].path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0 || ::close(fd) != 0 ||
        ::syscall(kMoveMount, devices[i].tree, "", AT_FDCWD, devices[i].path, kFromDescriptor) != 0)
      fail("cannot mount", devices[i].path);
    ::close(devices[i].tree);
  }
  constexpr const char* kLinks[][2] = {{"/proc/self/fd", "/dev/fd"},
                                       {"/proc/self/fd/0", "/dev/stdin"},
                                       {"/proc/self/fd/1", "/dev/stdout"},
                                       {"/proc/self/fd/2", "/dev/stderr"}};
  for (const auto& [to, at] : kLinks)
    if (::symlink(to, at) != 0) fail("cannot make", at);
  if (::mkdir("/dev/shm", 0755) != 0) fail("cannot make", "/dev/shm");
  mount_new("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777,size=64m");
  change_mount("/dev", 0, kReadOnly, 0);
}

}  // namespace

void make_view(const std::vector<const char*>& writable) {
  char here[4096];
  if (!::getcwd(here, sizeof here)) fail("this directory has no path");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    fail("cannot make the mounts private", "",
         " (sysctl kernel.apparmor_restrict_unprivileged_userns may forbid it)");
  Device devices[] = {{"/dev/null", -1},
                      {"/dev/zero", -1},
                      {"/dev/full", -1},
                      {"/dev/random", -1},
                      {"/dev/urandom", -1}};
  open_devices(devices, std::size(devices));
  for (const char* path : writable)
    if (::mount(path, path, nullptr, MS_BIND | MS_REC, nullptr) != 0) fail("cannot mount", path);
  mount_new("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, nullptr, kProcHint);
  change_mount("/", kRecursive, kReadOnly | kNoSetuid | kNoDevices, 0);
  for (const char* path : writable) change_mount(path, 0, 0, kReadOnly);
  make_devices(devices, std::size(devices));
  if (::chdir(here) != 0) fail("cannot enter", here);
}

}  // namespace temper::sandbox
