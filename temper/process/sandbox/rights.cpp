#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "temper/process/sandbox/steps.h"

namespace temper::sandbox {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "temper-sandbox: name this architecture"
#endif

// From here on: the numbers of x32, which name the same calls once more, and of architectures.
constexpr unsigned kOtherNumbers = 0x40000000;

// Numbers from 424 on are the same on all architectures; older headers lack them.
constexpr unsigned kIoUringSetup = 425, kClone3 = 435;

struct Refused {
  unsigned call;
  int error;
};
// clone3's flags lie in memory, where no filter can read them: C libraries then use clone.
constexpr Refused kRefused[] = {{kClone3, ENOSYS},
                                {kIoUringSetup, ENOSYS},
                                {SYS_unshare, EPERM},
                                {SYS_setns, EPERM},
                                {SYS_keyctl, EPERM},
                                {SYS_add_key, EPERM},
                                {SYS_request_key, EPERM},
                                {SYS_bpf, EPERM},
                                {SYS_perf_event_open, EPERM},
                                {SYS_userfaultfd, EPERM},
                                {SYS_process_vm_writev, EPERM}};
// Unix sockets reach servers outside by files, those of virtual machines their host.
constexpr unsigned kFamilies[] = {AF_INET, AF_INET6, AF_NETLINK};

constexpr size_t kMostSteps = 64;

class Filter {
 public:
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)); }
  // The next `skipped` steps are left out unless the number loaded is (has) this one.
  void unless_equal(unsigned number, unsigned char skipped) {
    add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, skipped);
  }
  void unless_has(unsigned bits, unsigned char skipped) {
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, skipped);
  }
  void unless_at_least(unsigned number, unsigned char skipped) {
    add(BPF_JMP | BPF_JGE | BPF_K, number, 0, skipped);
  }
  void give(unsigned action) { add(BPF_RET | BPF_K, action); }
  void refuse(int error) { give(SECCOMP_RET_ERRNO | static_cast<unsigned>(error)); }
  void install() {
    sock_fprog program{static_cast<unsigned short>(size_), steps_};
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      fail("cannot filter system calls");
  }

 private:
  void add(unsigned code, unsigned k, unsigned char yes = 0, unsigned char no = 0) {
    steps_[size_++] = {static_cast<unsigned short>(code), yes, no, k};
  }
  sock_filter steps_[kMostSteps];
  size_t size_ = 0;
};

void filter_calls() {
  Filter filter;
  constexpr size_t kFirstArgument = offsetof(seccomp_data, args);  // its lower half
  filter.load(offsetof(seccomp_data, arch));
  filter.unless_equal(kArchitecture, 1);
  filter.load(offsetof(seccomp_data, nr));
  filter.unless_at_least(kOtherNumbers, 1);  // of another architecture that is its own number
  filter.give(SECCOMP_RET_KILL_PROCESS);
  for (const Refused& refused : kRefused) {
    filter.unless_equal(refused.call, 1);
    filter.refuse(refused.error);
  }
  filter.unless_equal(SYS_clone, 4);
  filter.load(kFirstArgument);
  filter.unless_has(CLONE_NEWUSER, 1);
  filter.refuse(EPERM);
  filter.give(SECCOMP_RET_ALLOW);
  filter.unless_equal(SYS_socket, static_cast<unsigned char>(2 + 2 * std::size(kFamilies)));
  filter.load(kFirstArgument);
  for (const unsigned family : kFamilies) {
    filter.unless_equal(family, 1);
    filter.give(SECCOMP_RET_ALLOW);
  }
  filter.refuse(EAFNOSUPPORT);
  filter.give(SECCOMP_RET_ALLOW);
  filter.install();
}

}  // namespace

void drop_rights() {
  ::syscall(SYS_keyctl, 1, nullptr);  // KEYCTL_JOIN_SESSION_KEYRING: a new one
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability) != 0) fail("cannot drop a capability");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, none) != 0) fail("cannot drop the capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("cannot set no_new_privs");
  filter_calls();
}

}  // namespace temper::sandbox
