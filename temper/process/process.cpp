#include "temper/process/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "temper/base/error.h"
#include "temper/process/marked.h"

extern char** environ;

namespace temper::process {
namespace {

// longest wait for the end of a process after SIGKILL
constexpr auto kLongestKill = std::chrono::seconds(5);
constexpr int kFirstFile = 3;  // first file descriptor after the standard streams

// Kills the group when its standard input ends, and before that the processes that left the group.
// $1: a directory to remove, $2: the variable that all of the program's processes have.
constexpr const char* kLeader =
    "trap '' HUP INT QUIT TERM; read -r _; [ -z \"$1\" ] || rm -rf -- \"$1\"; "
    "for p in $(grep -alsF -- \"$2\" /proc/[0-9]*/environ); do p=${p#/proc/}; "
    "kill -KILL \"${p%/environ}\"; done; kill -KILL 0";

void close_end(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
    read = above_streams(ends[0]);
    write = above_streams(ends[1]);
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

 private:
  // In a program that was started with closed streams a pipe may take their numbers.
  static int above_streams(int fd) {
    if (fd >= kFirstFile) return fd;
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFile);
    ::close(fd);
    return moved;
  }
};

struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int streams[3];
  pid_t parent, group;  // group 0: one of its own
  const std::vector<ProcessOptions::Limit>* limits;
  int report;  // where the child writes errno if it cannot run the program
};

// The child's part, in memory that it shares with the suspended parent: system calls only.
[[noreturn]] void become(const Launch& launch) {
  bool ok = ::setpgid(0, launch.group) == 0;
  // A group that this program's end has killed already would be joined too late.
  if (::getppid() != launch.parent) ::_exit(127);
  for (int i = 0; ok && i < kFirstFile; ++i) ok = ::dup2(launch.streams[i], i) >= 0;
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
#ifdef SYS_close_range
  constexpr unsigned kCloseOnExec = 1 << 2;
  ::syscall(SYS_close_range, static_cast<unsigned>(kFirstFile), ~0U, kCloseOnExec);
#endif
  for (size_t i = 0; ok && i < launch.limits->size(); ++i) {
    const ProcessOptions::Limit& limit = (*launch.limits)[i];
    const rlimit value{limit.value, limit.value};
    ok = ::setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) == 0;
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (ok) ::execve(launch.program, launch.arguments, launch.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(launch.report, &error, sizeof error);
  ::_exit(127);
}

// Not fork(): it would copy the page tables of a program that may hold a large model, and keep
// pages that the program then changes twice. Not posix_spawn(): it knows no limits.
__attribute__((noinline)) pid_t start(const Launch& launch) {
  const pid_t child = ::vfork();
  if (child == 0) become(launch);
  return child;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  return out;
}

// Returns the child's id; throws RunError.
pid_t launch(std::vector<std::string> words, const std::string& program, Launch how,
             std::vector<std::string> variables) {
  std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  arguments.push_back(nullptr);
  // Of a name that stands twice some programs read the first value, and shells the last.
  const auto is_given = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(variables.begin(), variables.end(),
                       [name](const std::string& v) { return v.starts_with(name); });
  };
  for (char** entry = environ; *entry; ++entry)
    if (!is_given(*entry)) environment.push_back(*entry);
  environment.push_back(nullptr);
  Pipe report;
  how.program = program.c_str();
  how.arguments = arguments.data();
  how.environment = environment.data();
  how.report = report.write;
  how.parent = ::getpid();
  // No handler of this program may run in a child that shares its memory.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = start(how);
  const int why = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  check(child > 0, "cannot start ", words[0], ": ", std::strerror(why));
  close_end(report.write);
  int error = 0;
  ssize_t n;
  while ((n = ::read(report.read, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n != sizeof error) return child;
  ::waitpid(child, nullptr, 0);  // it has exited
  throw RunError(temper::str("cannot start ", words[0], ": ", std::strerror(error)));
}

// Readable when the process has ended; -1 where the system has no such thing.
int open_exit(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));  // closed on exec
#else
  return -1;
#endif
}

// Sleeps until it may have ended.
void sleep_until_end(pid_t pid, Clock::time_point until) {
  int fd = open_exit(pid);
  if (fd < 0) {
    ::usleep(500);
    return;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  pollfd end{fd, POLLIN, 0};
  ::poll(&end, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  ::close(fd);
}

// Whether it ended by then.
bool wait_for_end(pid_t pid, Clock::duration most, siginfo_t& info) {
  const Clock::time_point until = Clock::now() + most;
  while (true) {
    info = {};
    const int result = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result != 0 && errno != EINTR) return false;
    if (result == 0 && info.si_pid != 0) return true;
    if (Clock::now() >= until) return false;
    sleep_until_end(pid, until);
  }
}

void reap(pid_t& pid) {
  siginfo_t info;
  if (pid > 0 && wait_for_end(pid, kLongestKill, info)) ::waitpid(pid, nullptr, WNOHANG);
  pid = -1;
}

bool runnable(const std::string& path) {
  std::error_code ignored;
  return ::access(path.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return runnable(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string at = (folder.empty() ? "." : folder) + "/" + name; runnable(at))
      return at;
  return {};
}

namespace {

// Whether a line of words has what only a shell understands: `NAME=value program`, `cd x && y`.
bool needs_shell(const std::string& line) {
  return line.starts_with("cd ") || line.find_first_of("|<>&;$`") != std::string::npos ||
         line.substr(0, line.find(' ')).find('=') != std::string::npos;
}

// The script that the command's interpreter will not find. Empty: it finds it, or its first
// argument is an option, or the program is no interpreter of scripts.
std::string missing_script(std::span<const std::string> command) {
  constexpr std::array<std::string_view, 5> kInterpreters = {"python", "bash", "sh", "perl",
                                                             "ruby"};
  const std::string name = std::filesystem::path(command[0]).filename().string();
  const std::string_view language =
      std::string_view(name).substr(0, name.find_last_not_of("0123456789.") + 1);
  if (std::find(kInterpreters.begin(), kInterpreters.end(), language) == kInterpreters.end())
    return {};
  if (command.size() < 2 || command[1].empty() || command[1].starts_with('-')) return {};
  std::error_code ignored;
  if (std::filesystem::exists(command[1], ignored)) return {};
  return find_program(command[1]).empty() ? command[1] : "";  // shells look in PATH, too
}

}  // namespace

std::string program_problem(std::span<const std::string> command) {
  // No shell reads the command: these words would reach the program as they are. The first three
  // no program expects; the others may be a separator, say, and are doubtful beside a program that
  // is not there.
  constexpr std::array<std::string_view, 12> kShell = {"&&", "||", "2>&1", "|",  "&",  ";",
                                                       ">",  "<",  ">>",   "2>", "<<", "&>"};
  const std::string& name = command[0];
  const bool found = !find_program(name).empty();
  const auto end = found ? kShell.begin() + 3 : kShell.end();
  for (const std::string& word : command)
    if (std::find(kShell.begin(), end, word) != end)
      return "the command has `" + word +
             "`, which only a shell understands; write [bash, -c, \"the whole command\"]";
  if (found) {
    const std::string script = missing_script(command);
    return script.empty() ? script : "the script `" + script + "` of the command is not there";
  }
  std::string problem =
      "the command `" + name + "` is not " +
      (name.find('/') != std::string::npos ? "a program that can be run" : "found in PATH");
  const size_t space = name.find(' ');
  if (space != std::string::npos && needs_shell(name))
    problem += "; a shell understands such a line: [bash, -c, \"the whole command\"]";
  else if (space != std::string::npos && !find_program(name.substr(0, space)).empty())
    problem += "; write a program and its arguments as a list: [" + name.substr(0, space) + ", ..]";
  return problem;
}

Process::Process(const ProcessOptions& options)
    : mark_(new_mark()), sandboxed_(options.sandbox.on) {
  Pipe in, out, err, alive;
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  check(null >= 0, "cannot open /dev/null: ", std::strerror(errno));
  const std::vector<ProcessOptions::Limit> none;
  try {
    std::string program = find_program(options.command[0]);
    check(!program.empty(), "cannot start ", options.command[0], ": program not found");
    std::vector<std::string> command = options.command;
    if (sandboxed_) {
      std::vector<std::string> limits;
      for (const ProcessOptions::Limit& limit : options.limits)
        limits.push_back(temper::str(limit.resource, "=", limit.value));
      command = sandbox_command(options.sandbox, options.scratch, limits, program, command);
      program = command[0];
    }
    Launch leader{.streams = {alive.read, null, null}, .group = 0, .limits = &none};
    leader_ = launch({"sh", "-c", kLeader, "temper-worker", options.scratch, mark_}, "/bin/sh",
                     leader, {});
    Launch how{.streams = {in.read, out.write, err.write},
               .group = leader_,
               .limits = sandboxed_ ? &none : &options.limits};
    std::vector<std::string> variables = options.environment;
    variables.push_back(mark_);
    process_ = launch(std::move(command), program, how, std::move(variables));
  } catch (...) {
    ::close(null);
    end(Clock::duration::zero());
    throw;
  }
  ::close(null);
  alive_ = std::exchange(alive.write, -1);
  input_ = std::exchange(in.write, -1);
  output_ = std::exchange(out.read, -1);
  errors_ = std::exchange(err.read, -1);
  exit_ = open_exit(process_);
  for (const int fd : {input_, output_, errors_})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void Process::end(Clock::duration grace) {
  close_end(input_);
  siginfo_t info;
  if (process_ > 0) wait_for_end(process_, grace, info);
  // Until its leader is waited for, the group's number is nobody else's.
  if (leader_ > 0) ::kill(-leader_, SIGKILL);
  // In it is process 1 of the sandbox. The process that started it, which is not, ends when nothing
  // of the sandbox is left.
  if (sandboxed_ && process_ > 0) wait_for_end(process_, kLongestKill, info);
  // The program may have made a process group of its own, as `timeout` does. Until it is waited
  // for, its process id cannot be reused.
  if (process_ > 0) {
    ::kill(-process_, SIGKILL);
    ::kill(process_, SIGKILL);
  }
  const bool started = process_ > 0;
  reap(process_);
  if (started) kill_marked(mark_);
  reap(leader_);
  close_end(alive_);
  close_end(output_);
  close_end(errors_);
  close_end(exit_);
}

void Process::close_input() { close_end(input_); }

void Process::close_errors() { close_end(errors_); }

bool Process::input_is_read() const {
  int unread = 0;
  return input_ < 0 || ::ioctl(input_, FIONREAD, &unread) != 0 || unread == 0;
}

bool Process::has_ended() const {
  siginfo_t info;
  return wait_for_end(process_, Clock::duration::zero(), info);
}

std::string Process::ending() const {
  siginfo_t info;
  if (!wait_for_end(process_, Clock::duration::zero(), info)) return "closed its output";
  return info.si_code == CLD_EXITED ? temper::str("exited with status ", info.si_status)
                                    : temper::str("was ended by signal ", info.si_status);
}

}  // namespace temper::process
