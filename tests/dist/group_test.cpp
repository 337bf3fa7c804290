// Ranks as processes of their own, forked from this one before anything has started a thread.
#include "temper/dist/group.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/dist/environment.h"
#include "temper/dist/peer_watch.h"
#include "temper/dist/rendezvous.h"
#include "tests/dist/port.h"

using namespace temper;
using namespace temper::dist;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// A socket bound to the address; -1 where this machine has no such address.
int bound(const char* ip, bool v6) {
  const int fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  ::inet_pton(AF_INET6, ip, &six.sin6_addr);
  ::inet_pton(AF_INET, ip, &four.sin_addr);
  const auto* address = v6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  if (fd >= 0 && ::bind(fd, address, v6 ? sizeof six : sizeof four) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void set_ranks(int rank, int size, const std::string& host, uint16_t port, int timeout) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("MASTER_ADDR", host.c_str(), 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  ::setenv("TEMPER_TIMEOUT_SECONDS", std::to_string(timeout).c_str(), 1);
}

// Runs `work` in a child process as one of the ranks; its result is the exit status.
template <class Work>
pid_t start_rank(int rank, int size, const std::string& host, uint16_t port, Work work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  set_ranks(rank, size, host, port, 60);
  int status = 99;
  try {
    status = work();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  ::_exit(status);
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("ranks sum and gather, however the first one's address is written") {
  std::vector<std::string> hosts{"127.0.0.1", "localhost"};
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) == 0 &&
      message_of([&] {  // a host need not know its own name
        find_route(name, free_port(), Patience(1ms, {}));
      })
              .find("refused") != std::string::npos)
    hosts.push_back(name);
  if (const int fd = bound("::1", true); fd >= 0) {
    ::close(fd);
    hosts.push_back("::1");
  }
  for (const std::string& host : hosts) {
    CAPTURE(host);
    const uint16_t port = free_port();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(start_rank(rank, 3, host, port, [rank] {
        const auto group = Group::from_environment();
        std::vector<double> values{1.0 + rank, 10};
        group->all_reduce_sum(values);
        const std::vector<std::string> all = group->all_gather(std::string(rank, 'x'));
        group->barrier();
        return values[0] == 6 && values[1] == 30 && all[2] == "xx" && group->rank() == rank ? 0 : 1;
      }));
    for (const pid_t rank : ranks) CHECK(status_of(rank) == 0);
  }
}

TEST_CASE("a rank waits for others no longer than it is told, and says who is missing") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const pid_t child = start_rank(rank, 2, "127.0.0.1", free_port(), [rank] {
      // Long enough for rank 0 to reach itself on a machine that is busy.
      ::setenv("TEMPER_TIMEOUT_SECONDS", "8", 1);
      const auto start = Clock::now();
      const std::string message = message_of([] { Group::from_environment(); });
      const std::string missing = rank == 0 ? "rank 0: rank 1 of 2 did not connect within 8 s"
                                            : "rank 1: no answer from the first rank at 127.0.0.1:";
      std::fprintf(stderr, "%s\n", message.c_str());
      const bool ok = message.starts_with(missing) && message.find('\n') == std::string::npos &&
                      Clock::now() - start < 120s;
      return ok ? 0 : 1;
    });
    CHECK(status_of(child) == 0);
  }
}

TEST_CASE("a wish to stop ends the wait at once") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const pid_t child = start_rank(rank, 2, "127.0.0.1", free_port(), [] {
      const auto start = Clock::now();
      const std::string message = message_of(
          [&] { Group::from_environment([&] { return Clock::now() - start > 300ms; }); });
      return message.find("asked to stop") != std::string::npos ? 0 : 1;
    });
    CHECK(status_of(child) == 0);
  }
}

TEST_CASE("an environment that is half set is refused") {
  const auto message = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TEMPER_TIMEOUT_SECONDS"})
      ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    try {
      Group::from_environment();
      return std::string("none");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  CHECK(message({}) == "none");
  CHECK(message({{"WORLD_SIZE", "1"}, {"RANK", "0"}}) == "none");
  CHECK(message({{"RANK", "1"}}).starts_with("environment: RANK is set and WORLD_SIZE is not"));
  CHECK(message({{"WORLD_SIZE", "2"}}).starts_with("environment: RANK is not set"));
  CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "2"}}) ==
        "environment: RANK is 2, expected 0 to 1 for WORLD_SIZE 2");
  CHECK(message({{"WORLD_SIZE", "2x"}, {"RANK", "0"}})
            .starts_with("environment: WORLD_SIZE is `2x`"));
  CHECK(
      message({{"WORLD_SIZE", "2"}, {"RANK", "0"}}).starts_with("environment: MASTER_PORT is not"));
  CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_PORT", "99999"}})
            .starts_with("environment: MASTER_PORT is `99999`"));
  CHECK(message({}) == "none");
}

TEST_CASE("a route is found to names and to addresses, and to whom comes late") {
  for (const bool v6 : {false, true}) {
    const int fd = bound(v6 ? "::1" : "127.0.0.1", v6);
    if (fd < 0) continue;
    const uint16_t port = port_of(fd);
    std::thread late([&] {
      std::this_thread::sleep_for(300ms);
      ::listen(fd, 4);
    });
    const Route route = find_route(v6 ? "::1" : "localhost", port, Patience(30s, {}));
    late.join();
    CHECK(route.loopback);
    CHECK(route.local == (v6 ? "::1" : "127.0.0.1"));
    CHECK(route.remote == route.local);
    ::close(fd);
  }
  CHECK(message_of([] {
          find_route("::1", 1, Patience(10ms, {}));
        }).starts_with("no answer from the first rank at [::1]:1 ("));
  CHECK(message_of([] {
          find_route("no-such-host.invalid", 1, Patience(10ms, {}));
        }).find("no-such-host.invalid:1") != std::string::npos);
}

namespace {
std::atomic<bool> name_server_answers{false};
int late_answer(const char*, const char*, const addrinfo*, addrinfo**) {
  while (!name_server_answers) std::this_thread::sleep_for(1ms);
  return EAI_AGAIN;
}
}  // namespace

TEST_CASE("a name server that does not answer is not waited for without end") {
  const std::string error =
      message_of([] { find_route("late", 1, Patience(100ms, {}), &late_answer); });
  CHECK_MESSAGE(error.starts_with("no answer from the first rank at late:1 (its name is being "
                                  "looked up) within 0.1"),
                error);
  CHECK_THROWS_AS(find_route("late", 1, Patience(1h, [] { return true; }), &late_answer), Stopped);
  NameLookup lookup("late", "1", false, &late_answer);
  CHECK_FALSE(lookup.wait_for(5ms));
  name_server_answers = true;
  CHECK(lookup.wait_for(1min));
  CHECK(lookup.addresses() == nullptr);
  CHECK(lookup.error() == ::gai_strerror(EAI_AGAIN));
}

TEST_CASE("ranks on the master's host listen where other hosts reach it") {
  const Route here{"127.0.0.1", "127.0.1.1", true};
  const Route outside{"10.0.0.2", "10.0.0.1", false};
  const Route on_master{"10.0.0.1", "10.0.0.1", false};
  CHECK(choose_address(here, {here, here}) == "127.0.0.1");
  CHECK(choose_address(here, {here, outside}) == "10.0.0.1");
  CHECK(choose_address(outside, {here, outside}) == "10.0.0.2");
  CHECK(choose_address(on_master, {on_master, outside}) == "10.0.0.1");
  const Route read = parse_route(to_text(outside));
  CHECK(read.local == "10.0.0.2");
  CHECK(read.remote == "10.0.0.1");
  CHECK_FALSE(read.loopback);
  CHECK_THROWS_AS(parse_route("x"), RunError);
}

TEST_CASE("a rank that is killed or stopped is noticed by all others, one that ends by none") {
  // Seconds: a rank that lives is not silent so long, however busy the machine is.
  static constexpr double kSilence = 6;
  constexpr int kNone = -1, kKilled = 2, kStopped = 2 + 100;
  for (const int end : {kNone, kKilled, kStopped}) {
    CAPTURE(end);
    const uint16_t port = free_port();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back(start_rank(rank, 4, "127.0.0.1", port, [rank, end] {
        const auto group = Group::from_environment();
        std::atomic<int> lost{kNone};
        std::optional<PeerWatch> watch(
            std::in_place, *group, "127.0.0.1", kSilence, [&](const LostPeer& peer) {
              lost = peer.host == host_name()
                         ? peer.rank + (peer.how == LostPeer::How::kSilent ? 100 : 0)
                         : 1000;
            });
        group->barrier();
        if (rank == 2 && end == kKilled) ::kill(::getpid(), SIGKILL);
        if (rank == 2 && end == kStopped) ::kill(::getpid(), SIGSTOP);
        if (rank == 2) watch.reset();
        if (rank == 2) return 0;
        const auto start = Clock::now();
        while (lost == kNone && Clock::now() - start < (end == kNone ? 9s : 120s))
          std::this_thread::sleep_for(10ms);
        return lost == end ? 0 : 1;
      }));
    for (const int rank : {0, 1, 3}) CHECK(status_of(ranks[static_cast<size_t>(rank)]) == 0);
    if (end == kStopped) ::kill(ranks[2], SIGKILL);
    CHECK(status_of(ranks[2]) == (end == kNone ? 0 : -1));
  }
}

TEST_CASE("a process that hears of a lost rank ends by itself, or soon after") {
  // What it does then: it goes on without asking, waits for nothing more, or saves first.
  enum class Does { kFails, kHangs, kSaves };
  for (const Does does : {Does::kFails, Does::kHangs, Does::kSaves}) {
    CAPTURE(static_cast<int>(does));
    const auto start = Clock::now();
    const pid_t process = start_rank(0, 1, "127.0.0.1", 1, [does] {
      check_peers();  // nothing was lost yet
      end_process(0)({1, "host-b", LostPeer::How::kEnded});
      std::string text;
      try {
        check_peers();
      } catch (const RunError& e) {
        text = e.what();
      }
      if (text.find("rank 0: rank 1 on host-b has exited") != 0) return 3;
      if (does == Does::kFails) return 2;
      if (does == Does::kSaves) {
        const Saving saving;
        std::this_thread::sleep_for(8s);  // longer than it is given else
        return 4;
      }
      std::this_thread::sleep_for(300s);
      return 5;
    });
    CHECK(status_of(process) == (does == Does::kFails ? 2 : does == Does::kSaves ? 4 : 1));
    // One that did not hear is given 30 seconds.
    CHECK(Clock::now() - start < 25s);
  }
}

namespace {

// The first of two ranks, of which the other says that it listens at that place.
class Misled : public Group {
 public:
  explicit Misled(std::string place) : place_(std::move(place)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void barrier() override {}
  // Lengths of texts, and then the texts.
  void all_reduce_sum(at::Tensor& lengths) override {
    lengths[1] = static_cast<double>(place_.size());
  }
  void all_gather(const at::Tensor& part, at::Tensor& whole) override {
    std::memcpy(whole.mutable_data_ptr(), part.const_data_ptr(), part.nbytes());
    std::memcpy(static_cast<char*>(whole.mutable_data_ptr()) + part.nbytes(), place_.data(),
                place_.size());
  }

 private:
  const std::string place_;
};

}  // namespace

TEST_CASE("a rank whose host takes no connection is given up as one without heartbeats is") {
  const int listening = bound("127.0.0.1", false);
  REQUIRE(listening >= 0);
  REQUIRE(::listen(listening, 0) == 0);
  const uint16_t port = port_of(listening);
  NameLookup lookup("127.0.0.1", std::to_string(port), false);
  // Until the queue is full: what comes then gets no answer.
  std::vector<int> waiting;
  for (int fd = 0; fd >= 0 && waiting.size() < 8;) {
    fd = connect_within(*lookup.addresses(), 300ms);
    if (fd >= 0) waiting.push_back(fd);
    if (fd < 0) CHECK(errno == ETIMEDOUT);
  }
  REQUIRE(waiting.size() < 8);
  CHECK_THROWS_AS(connect_within(*lookup.addresses(), 1h, [] { throw Stopped("asked to stop"); }),
                  Stopped);
  Misled group(str("127.0.0.1 ", port));
  const auto start = Clock::now();
  const std::string error = message_of([&] { PeerWatch(group, "127.0.0.1", 1, [](auto&) {}); });
  CHECK_MESSAGE(error.starts_with(str("cannot connect to 127.0.0.1 ", port, ": ")), error);
  CHECK(Clock::now() - start < 30s);
  for (const int fd : waiting) ::close(fd);
  ::close(listening);
}
