#include "temper/rewards/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "temper/base/error.h"

extern char** environ;

namespace temper::rewards {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;
constexpr size_t kKeptComplaints = 2000;
constexpr auto kGrace =
    std::chrono::milliseconds(200);  // to end by itself once its input is closed

void close_end(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// Both ends are closed with it, but for what was taken.
struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};
int taken(int& end) { return std::exchange(end, -1); }

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(s, 1e6)));
}

// Reads what is there. False at the end of the stream.
bool drain(int fd, std::string& into, size_t most) {
  char bytes[4096];
  while (into.size() < most) {
    const ssize_t n = ::read(fd, bytes, sizeof bytes);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    into.append(bytes, static_cast<size_t>(n));
  }
  return true;
}

// A write to a worker that is gone gives an error and no signal, in this thread alone.
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

void Worker::start() {
  Pipe in, out, err;
  std::string directory =
      (std::filesystem::temp_directory_path() / "temper-reward-XXXXXX").string();
  check(::mkdtemp(directory.data()) != nullptr,
        "cannot make a directory for a reward's worker: ", std::strerror(errno));
  directory_ = directory;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  posix_spawn_file_actions_addchdir_np(&actions, directory_.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (const std::string& argument : options_.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int error =
      ::posix_spawnp(&process_, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  input_ = taken(in.write);
  output_ = taken(out.read);
  errors_ = taken(err.read);
  if (error != 0) {
    process_ = -1;
    stop();
    throw RunError(
        temper::str("cannot start the reward ", options_.command[0], ": ", std::strerror(error)));
  }
  if (options_.memory_bytes) {
    const rlimit limit{static_cast<rlim_t>(*options_.memory_bytes),
                       static_cast<rlim_t>(*options_.memory_bytes)};
    if (::prlimit(process_, RLIMIT_AS, &limit, nullptr) != 0 && errno != ESRCH) {
      const int why = errno;
      stop();
      throw RunError(temper::str("cannot limit the memory of the reward ", options_.command[0],
                                 ": ", std::strerror(why)));
    }
  }
  for (const int fd : {input_, output_, errors_})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  fresh_ = true;
}

bool Worker::ask(std::string line) {
  const bool ended = process_ >= 0 && !drain(output_, received_, 1);
  const bool unasked = !received_.empty();
  if (ended || unasked) stop();
  if (unasked) return false;
  if (process_ < 0) start();
  unsent_ = std::move(line);
  unsent_ += '\n';
  busy_ = true;
  deadline_ = Clock::now() + seconds(options_.timeout_seconds + (fresh_ ? start_seconds_ : 0));
  return true;
}

std::optional<Worker::Answer> Worker::advance() {
  if (!busy_) return {};
  if (!unsent_.empty()) {
    const NoPipeSignal quiet;
    const ssize_t n = ::write(input_, unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<size_t>(n));
    if (n < 0 && errno == EPIPE) unsent_.clear();  // it reads no more; its answer may still come
  }
  if (errors_ >= 0) {
    if (!drain(errors_, complaints_, kKeptComplaints + 65536)) close_end(errors_);
    if (complaints_.size() > kKeptComplaints)
      complaints_.erase(0, complaints_.size() - kKeptComplaints);
  }
  const bool open = drain(output_, received_, kLongestLine + 1);
  const size_t line = received_.find('\n');
  if (line != std::string::npos) {
    Answer answer{Answer::Kind::kLine, received_.substr(0, line)};
    received_.erase(0, line + 1);
    busy_ = fresh_ = false;
    start_seconds_ = options_.start_timeout_seconds;
    if (!unsent_.empty()) stop();  // it answered before it read
    return answer;
  }
  if (received_.size() > kLongestLine)
    return fail(Answer::Kind::kGarbage,
                temper::str("answered with a line of more than ", kLongestLine, " bytes"));
  if (!open) return fail(Answer::Kind::kEnded, ending());
  if (Clock::now() >= deadline_) {
    const double waited = options_.timeout_seconds + (fresh_ ? start_seconds_ : 0);
    if (fresh_) start_seconds_ /= 2;
    return fail(Answer::Kind::kTimedOut, temper::str("gave no answer within ", waited, " s"));
  }
  return {};
}

std::string Worker::ending() {
  if (errors_ >= 0) drain(errors_, complaints_, kKeptComplaints + 65536);
  siginfo_t info{};
  std::string how = "closed its output";
  // The end of the output comes a moment before the end of the process.
  for (int i = 0;
       i < 50 &&
       ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
       info.si_pid == 0;
       ++i)
    ::usleep(2000);
  if (info.si_pid != 0)
    how = info.si_code == CLD_EXITED ? temper::str("exited with status ", info.si_status)
                                     : temper::str("was ended by signal ", info.si_status);
  const std::string tail = complaints_.size() > kKeptComplaints
                               ? complaints_.substr(complaints_.size() - kKeptComplaints)
                               : complaints_;
  return tail.empty() ? how : how + "; its standard error ends: " + tail;
}

Worker::Answer Worker::fail(Answer::Kind kind, std::string text) {
  stop();
  return {kind, std::move(text)};
}

void Worker::stop() {
  close_end(input_);
  if (process_ >= 0) {
    siginfo_t info{};
    const auto until = Clock::now() + (busy_ ? Clock::duration::zero() : Clock::duration(kGrace));
    while (::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0 && Clock::now() < until)
      ::usleep(1000);
    // Until it is waited for, its group's number is nobody else's.
    ::kill(-process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = -1;
  close_end(output_);
  close_end(errors_);
  unsent_.clear();
  received_.clear();
  complaints_.clear();
  busy_ = false;
  fresh_ = true;
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  directory_.clear();
}

}  // namespace temper::rewards
