#include "temper/cli/launch.h"

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/dist/environment.h"
#include "temper/dist/world.h"

extern char** environ;

namespace temper::cli {
namespace {

constexpr const char* kLauncher = "TEMPER_LAUNCHER";  // in a rank's environment: its parent's id
// More ranks than cores are for trying things out; thousands would only fill the memory.
constexpr int kRanksOfACore = 8, kRanksAnywhere = 16;
constexpr int64_t kBytesOfARank = int64_t{128} << 20;  // before it has loaded anything
constexpr int kPeerEnded = SIGUSR1;                    // the launcher's word to a rank
constexpr int kGraceSeconds = 10;  // for ranks to notice by themselves that another one has gone
// For rank 0, which may be writing a checkpoint then (dist/peer_watch.h), unless its process is
// stopped.
constexpr int kLeaderSeconds = 700;

int most_ranks() {
  const int64_t cores = std::thread::hardware_concurrency();
  const int64_t by_memory = std::max<int64_t>(usable_memory_bytes() / kBytesOfARank, 2);
  return static_cast<int>(
      std::min(std::max<int64_t>(kRanksAnywhere, cores * kRanksOfACore), by_memory));
}

// Where the ranks meet: a socket of the loopback interface that rank 0 inherits, so that no other
// program can take its port meanwhile.
class MeetingPlace {
 public:
  MeetingPlace() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool ok = socket_ >= 0 &&
                    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    check(ok, "--nproc: no free port on the loopback interface: ", std::strerror(errno));
    port_ = ntohs(address.sin_port);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  ~MeetingPlace() { ::close(socket_); }
  int socket() const { return socket_; }
  int port() const { return port_; }

 private:
  int socket_, port_ = 0;
};

bool asks_to_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

// The launcher's exit status after a rank ended with `result` (as waitpid gives it). `asked`: the
// signal that asked the launcher to stop, 0 for none; it counts whatever number the rank that
// stopped gives. A signal that programs are not stopped with is a failure.
int status_of(int result, int asked) {
  const int by = WIFSIGNALED(result) ? WTERMSIG(result) : WEXITSTATUS(result) - 128;
  if (asks_to_stop(by)) return 128 + (asked ? asked : by);
  return WIFEXITED(result) ? WEXITSTATUS(result) : 1;
}

// Whether the process is stopped (SIGSTOP, a debugger).
bool is_stopped(pid_t pid) {
  std::ifstream file(temper::str("/proc/", pid, "/stat"));
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = stat.rfind(')');  // the state follows
  return name_end != stat.npos && stat.size() > name_end + 2 &&
         (stat[name_end + 2] == 'T' || stat[name_end + 2] == 't');
}

pid_t start(int rank, int ranks, const MeetingPlace& place, const char* verb,
            const Arguments& arguments) {
  const unsigned threads =
      std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(ranks));
  std::vector<std::string> environment{temper::str("RANK=", rank),
                                       temper::str("LOCAL_RANK=", rank),
                                       temper::str("WORLD_SIZE=", ranks),
                                       temper::str("LOCAL_WORLD_SIZE=", ranks),
                                       "MASTER_ADDR=127.0.0.1",
                                       temper::str("MASTER_PORT=", place.port()),
                                       temper::str(kLauncher, "=", ::getpid())};
  if (!std::getenv("OMP_NUM_THREADS"))
    environment.push_back(temper::str("OMP_NUM_THREADS=", threads));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (rank == 0) {
    environment.push_back(temper::str(dist::kListeningSocket, "=", place.socket()));
    // Onto itself: it stays open in the new program.
    posix_spawn_file_actions_adddup2(&files, place.socket(), place.socket());
  }
  std::vector<char*> env, argv;
  for (std::string& entry : environment) env.push_back(entry.data());
  for (char** entry = environ; *entry; ++entry) env.push_back(*entry);
  env.push_back(nullptr);
  std::vector<std::string> words{"temper", verb};
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid;
  const int error =
      ::posix_spawn(&pid, "/proc/self/exe", &files, &attributes, argv.data(), env.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  check(error == 0, "--nproc: cannot start rank ", rank, ": ", std::strerror(error));
  return pid;
}

}  // namespace

int take_nproc(const Arguments& arguments, Arguments& rest) {
  int ranks = 1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool joined = arguments[i].starts_with("--nproc=");
    if (arguments[i] != "--nproc" && !joined) {
      rest.push_back(arguments[i]);
      continue;
    }
    const std::string text = joined                     ? arguments[i].substr(8)
                             : i + 1 < arguments.size() ? arguments[++i]
                                                        : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    check<ConfigError>(error == std::errc() && end == text.data() + text.size() && ranks >= 1,
                       "--nproc: found `", text, "`, expected the number of ranks");
    check_nproc(ranks);
  }
  return ranks;
}

void check_nproc(int ranks) {
  check<ConfigError>(
      ranks == 1 || !std::getenv("RANK"), "--nproc: found ", ranks,
      ", but a launcher has started this process as one rank already (RANK is set, as "
      "torchrun does); leave out --nproc, or unset RANK");
  check<ConfigError>(ranks <= most_ranks(), "--nproc: found ", ranks, ", expected at most ",
                     most_ranks(), " on this machine of ", std::thread::hardware_concurrency(),
                     " cores and ", usable_memory_bytes() >> 20, " MiB of memory");
}

bool is_launched() { return std::getenv(kLauncher) != nullptr; }

bool is_later_rank() {
  const char* rank = std::getenv("RANK");
  return is_launched() && rank && std::string_view(rank) != "0";
}

void end_with_launcher() {
  const char* launcher = std::getenv(kLauncher);
  if (!launcher) return;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have gone before that.
  if (std::to_string(::getppid()) != launcher) ::raise(SIGTERM);
}

void end_without_peers() {
  if (!is_launched()) return;
  ::signal(kPeerEnded, [](int) {
    if (!dist::have_met()) ::_exit(1);
  });
}

int launch_ranks(int ranks, const std::vector<int>& serving, const char* verb,
                 const Arguments& arguments) {
  auto place = std::make_unique<const MeetingPlace>();
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&awaited, signal);
  struct sigaction hangup{};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&awaited, SIGHUP);  // else under nohup
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  std::map<pid_t, int> running;  // their ranks
  for (int rank = 0; rank < ranks; ++rank)
    running[start(rank, ranks, *place, verb, arguments)] = rank;
  place.reset();  // else ranks could still connect to it once rank 0 has ended
  const auto serves = [&](int rank) {
    return std::find(serving.begin(), serving.end(), rank) != serving.end();
  };
  const auto runs = [&](const auto& which) {
    return std::any_of(running.begin(), running.end(),
                       [&](const auto& child) { return which(child.second); });
  };
  const auto is_leader = [](int rank) { return rank == 0; };
  const auto trains = [&](int rank) { return !serves(rank); };
  int status = 0, waited = -1;  // seconds since a rank failed, or the last that trains ended
  int asked = 0;                // the first signal that asked to stop
  while (!running.empty()) {
    const timespec second{1, 0};
    const int signal = ::sigtimedwait(&awaited, nullptr, &second);
    if (asks_to_stop(signal)) {
      if (asked == 0) asked = signal;
      for (const auto& [child, rank] : running) ::kill(child, SIGTERM);
    }
    int result = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &result, WNOHANG)) > 0;) {
      const auto found = running.find(pid);
      if (found == running.end()) continue;
      const int rank = found->second;
      running.erase(found);
      const int code = status_of(result, asked);
      if (code == 0 || status != 0) continue;
      if (WIFSIGNALED(result))
        std::cerr << "temper: rank " << rank << " was ended by signal " << WTERMSIG(result)
                  << (WTERMSIG(result) == SIGKILL ? ", as the system does where memory runs out"
                                                  : "")
                  << (serves(rank) ? "" : "; the run ends") << std::endl;
      if (serves(rank)) continue;
      status = code;
      waited = 0;
      for (const auto& [child, other] : running) ::kill(child, kPeerEnded);
    }
    if (waited < 0 && !runs(trains)) waited = 0;
    if (waited < 0) continue;
    // What the user gave is wrong: the other ranks would say the same. Rank 0 alone has something
    // to lose: it saves what was trained.
    const bool all = waited >= kLeaderSeconds || (status == 2 && !runs(is_leader));
    for (const auto& [child, rank] : running)
      if (all || (waited >= kGraceSeconds && (!is_leader(rank) || is_stopped(child))))
        ::kill(child, SIGKILL);
    if (signal < 0) ++waited;
  }
  return status;
}

}  // namespace temper::cli
