// Runs a program in namespaces of its own, from which it reaches nothing but what it is given
// (steps.h), and ends as it ends.
//   temper-sandbox [--network] [--write DIRECTORY].. [--limit RESOURCE=VALUE].. [-- FILE NAME
//   ARGUMENT..]
// A program by itself, because a process with threads can make no user namespace, and small,
// because one starts for every call of a tool. Without a file it says whether it could.
//
// Three processes: this one stays outside and tells how the program ended; its child is process 1
// of the new pid namespace, with whose end the kernel kills all others there; the program is its
// child.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "temper/process/sandbox/steps.h"

namespace temper::sandbox {
namespace {

constexpr int kNotStarted = 127;  // exit status, as a shell's

struct Limit {
  int resource;
  rlim_t value;
};

struct Request {
  bool network = false;
  std::vector<const char*> writable;
  std::vector<Limit> limits;
  char** program = nullptr;  // its file, then its arguments
};

[[noreturn]] void refuse_arguments() {
  errno = EINVAL;
  fail("wrong arguments; this program is Temper's own");
}

Request read_arguments(char** arguments) {
  Request request;
  while (const char* word = *arguments++) {
    if (std::strcmp(word, "--network") == 0) {
      request.network = true;
      continue;
    }
    if (!*arguments) refuse_arguments();
    if (std::strcmp(word, "--") == 0) {
      if (!arguments[1]) refuse_arguments();
      request.program = arguments;
      return request;
    }
    char* value = *arguments++;
    if (std::strcmp(word, "--write") == 0) {
      request.writable.push_back(value);
    } else if (std::strcmp(word, "--limit") == 0) {
      char* rest = nullptr;
      const long resource = std::strtol(value, &rest, 10);
      if (*rest != '=') refuse_arguments();
      request.limits.push_back({static_cast<int>(resource), std::strtoull(rest + 1, nullptr, 10)});
    } else {
      refuse_arguments();
    }
  }
  return request;
}

// The program's streams end with the program.
void let_go_of_streams() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
}

[[noreturn]] void run_program(const Request& request) {
  ::setsid();
  for (const Limit& limit : request.limits) {
    const rlimit value{limit.value, limit.value};
    if (::setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0)
      fail("cannot limit a resource");
  }
  ::execv(request.program[0], request.program + 1);
  const int error = errno;
  const char* message[] = {"temper-sandbox: cannot start ", request.program[0], ": ",
                           std::strerror(error), "\n"};
  for (const char* part : message) [[maybe_unused]]
    const ssize_t n = ::write(STDERR_FILENO, part, std::strlen(part));
  ::_exit(kNotStarted);
}

// Process 1: waits for the program, and for all whose parents are gone.
[[noreturn]] void be_first(const Request& request, int report) {
  make_view(request.writable);
  drop_rights();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 0);
  const pid_t program = request.program ? ::fork() : 0;
  if (program < 0) fail("cannot start a process");
  if (!request.program) ::_exit(0);
  if (program == 0) run_program(request);
  let_go_of_streams();
  int status = 0;
  pid_t ended;
  while ((ended = ::waitpid(-1, &status, 0)) != program && (ended > 0 || errno == EINTR)) {
  }
  [[maybe_unused]] const ssize_t n = ::write(report, &status, sizeof status);
  ::_exit(0);
}

// As the program did.
[[noreturn]] void end_with(int status) {
  if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::kill(::getpid(), WTERMSIG(status));
  ::_exit(kNotPossible);
}

[[noreturn]] void run(const Request& request) {
  enter_namespaces(request.network);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) fail("cannot make a pipe");
  const pid_t first = ::fork();
  if (first < 0) fail("cannot start a process");
  if (first == 0) be_first(request, report[1]);
  // Who kills the group kills process 1; this one then says when nothing of it is left.
  ::setpgid(0, 0);
  ::close(report[1]);
  let_go_of_streams();
  int status = 0, end = 0;
  const bool told = ::read(report[0], &status, sizeof status) == sizeof status;
  while (::waitpid(first, &end, 0) < 0 && errno == EINTR) {
  }
  end_with(told ? status : end);
}

}  // namespace
}  // namespace temper::sandbox

int main(int, char** argv) { temper::sandbox::run(temper::sandbox::read_arguments(argv + 1)); }
