#include "temper/dist/peer_watch.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/liveness.h"
#include "temper/dist/environment.h"
#include "temper/dist/rendezvous.h"

namespace temper::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds that the run gets to end by itself: until it notices the lost rank, and from then on.
constexpr auto kGrace = std::chrono::seconds(30), kGraceHeard = std::chrono::seconds(5);
constexpr int kConnectMilliseconds = 60'000;
// A host that takes no connection in the time of a heartbeat's absence is lost; a first packet that
// is lost is sent again within a few seconds.
constexpr std::chrono::milliseconds kLeastConnect{3'000}, kMostConnect{kConnectMilliseconds};
constexpr double kLongestHeartbeat = 1e6;  // seconds
// Messages between neighbours, words of four bytes: a heartbeat, an orderly end, or the number of a
// lost rank, with the way it was lost in the bits from kHow on.
constexpr int32_t kGoodbye = -1, kHeartbeat = -2;
constexpr int kHow = 24, kHows = 3;
int32_t word_of(int rank, LostPeer::How how) { return rank | static_cast<int32_t>(how) << kHow; }
constexpr int kHeartbeats = 9;  // heartbeats in the time after which a silent rank counts as lost

void close_socket(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

NameLookup find_address(const std::string& host, const std::string& port, bool listens) {
  NameLookup lookup(host, port, listens);
  check(lookup.wait_for(std::chrono::milliseconds(kConnectMilliseconds)),
        "cannot find the address of ", host, ": no answer from the name server within ",
        kConnectMilliseconds / 1000, " s");
  check(lookup.addresses() != nullptr, "cannot find the address of ", host, ": ", lookup.error());
  return lookup;
}

// Listens at a port that is free; gives "HOST PORT".
std::pair<int, std::string> listen_at(const std::string& address) {
  const NameLookup lookup = find_address(address, "0", true);
  const addrinfo* const found = lookup.addresses();
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[NI_MAXSERV] = "";
  const bool listens = fd >= 0 && ::bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(fd, 1) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0 &&
                       ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port,
                                     sizeof port, NI_NUMERICSERV) == 0;
  check(listens, "cannot listen at ", address, ": ", std::strerror(errno));
  return {fd, address + " " + port};
}

int connect_to(const std::string& place, std::chrono::milliseconds most) {
  const size_t space = place.rfind(' ');
  const NameLookup lookup = find_address(place.substr(0, space), place.substr(space + 1), false);
  const int fd = connect_within(*lookup.addresses(), most);
  check(fd >= 0, "cannot connect to ", place, ": ", std::strerror(errno));
  return fd;
}

int accept_from(int listening) {
  pollfd waits{listening, POLLIN, 0};
  const bool comes = ::poll(&waits, 1, kConnectMilliseconds) == 1;
  const int fd = comes ? ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  check(fd >= 0, "another rank did not connect");
  return fd;
}

void tell(int fd, int32_t word) {
  if (fd >= 0) ::send(fd, &word, sizeof word, MSG_NOSIGNAL);
}

std::set<int> connections() {
  std::set<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (fd < 0 || ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found.insert(fd);
  }
  return found;
}

}  // namespace

// One of the two neighbours in the ring.
struct PeerWatch::Neighbour {
  int rank;
  int fd;  // -1: ended in order
  Clock::time_point heard = Clock::now();
  std::array<char, sizeof(int32_t)> word{};
  size_t have = 0;  // bytes of the word received so far
};

PeerWatch::PeerWatch(Group& group, const std::string& address, double heartbeat_timeout_seconds,
                     std::function<void(const LostPeer&)> lost)
    : rank_(group.rank()),
      size_(group.size()),
      address_(address),
      timeout_(static_cast<int64_t>(1000 * std::min(heartbeat_timeout_seconds, kLongestHeartbeat))),
      lost_(std::move(lost)) {
  if (size_ == 1) return;
  hosts_ = group.all_gather(host_name());
  auto [listening, place] = listen_at(address);
  const std::vector<std::string> places = group.all_gather(place);
  try {
    next_ = connect_to(places[static_cast<size_t>((rank_ + 1) % size_)],
                       std::clamp(timeout_, kLeastConnect, kMostConnect));
    previous_ = accept_from(listening);
  } catch (...) {
    close_socket(listening);
    close_socket(next_);
    throw;
  }
  close_socket(listening);
  for (const int fd : {next_, previous_}) {
    notice_silence(fd);
    notice_unanswered(fd);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  check(wake_ >= 0, "cannot make an eventfd");
  thread_ = std::thread([this] { watch(); });
}

PeerWatch::~PeerWatch() {
  if (size_ == 1) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  thread_.join();
  // One that ends by an error tells nobody: its connections break, as if it were killed.
  if (std::uncaught_exceptions() == 0)
    for (const int fd : {next_, previous_}) tell(fd, kGoodbye);
  close_socket(next_);
  close_socket(previous_);
  close_socket(wake_);
}

// Reports a lost rank to the neighbour on the other side.
void PeerWatch::lose(int32_t word, Neighbour& tell_on) {
  tell(tell_on.fd, word);
  const int rank = word & ((1 << kHow) - 1);
  lost_({rank, hosts_[static_cast<size_t>(rank)], static_cast<LostPeer::How>(word >> kHow)});
}

// Reads the words that have come; false: a rank is lost.
bool PeerWatch::hear(Neighbour& from, Neighbour& other) {
  const ssize_t n = ::recv(from.fd, &from.word[from.have], from.word.size() - from.have, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    const bool vanished =
        n < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == EHOSTDOWN ||
                  errno == ENETUNREACH || errno == ENETDOWN);
    using How = LostPeer::How;
    lose(word_of(from.rank, vanished ? How::kUnreachable : How::kEnded), other);
    return false;
  }
  from.heard = Clock::now();
  from.have += static_cast<size_t>(n);
  if (from.have < from.word.size()) return true;
  from.have = 0;
  int32_t word;
  std::memcpy(&word, from.word.data(), sizeof word);
  if (word == kGoodbye) from.fd = -1;
  if (word == kGoodbye || word == kHeartbeat) return true;
  const bool known = word >= 0 && (word & ((1 << kHow) - 1)) < size_ && word >> kHow < kHows;
  lose(known ? word : from.rank, other);  // a neighbour that sends an invalid word counts as lost
  return false;
}

// Until this rank ends, a rank is lost, or both neighbours have ended in order.
void PeerWatch::watch() {
  Neighbour next{(rank_ + 1) % size_, next_}, previous{(rank_ + size_ - 1) % size_, previous_};
  const std::chrono::milliseconds between = timeout_ / kHeartbeats;
  Clock::time_point beat = Clock::now(), seen = beat;
  while (next.fd >= 0 || previous.fd >= 0) {
    std::array<pollfd, 3> fds{{{wake_, POLLIN, 0}, {next.fd, POLLIN, 0}, {previous.fd, POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(between.count()));
    if (fds[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    // It was this process that stood still (Ctrl-Z, a container that is paused).
    if (now - seen > 3 * between) next.heard = previous.heard = now;
    seen = now;
    if (now >= beat) {
      for (const Neighbour* to : {&next, &previous}) tell(to->fd, kHeartbeat);
      beat = now + between;
    }
    if (fds[1].revents != 0 && !hear(next, previous)) return;
    if (fds[2].revents != 0 && !hear(previous, next)) return;
    for (auto [from, other] : {std::pair{&next, &previous}, std::pair{&previous, &next}})
      if (from->fd >= 0 && now - from->heard > timeout_)
        return lose(word_of(from->rank, LostPeer::How::kSilent), *other);
  }
}

std::string LostPeer::text() const {
  const char* what = how == How::kEnded ? " has exited"
                     : how == How::kSilent
                         ? " sent no heartbeat for longer than "
                           "mesh.heartbeat_timeout_seconds: its process is stopped, or its host "
                           "frozen"
                         : " is unreachable: its host is down, or the network to it is";
  return temper::str("rank ", rank, " on ", host, what);
}

namespace {

std::atomic<int> saving{0};
constexpr std::chrono::milliseconds kLongestSaving = std::chrono::minutes(10), kLook(100);

// The first rank that was lost.
struct Loss {
  std::mutex mutex;
  std::string text;
  std::atomic<bool> known{false}, heard{false};
};
Loss& loss() {
  static Loss one;
  return one;
}

// Waits until this process has had its time to end by itself.
void wait_for_end(std::chrono::seconds grace) {
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start, end = start + grace;
  bool heard = false;
  do {
    std::this_thread::sleep_for(kLook);
    now = Clock::now();
    if (!std::exchange(heard, loss().heard.load()) && heard) end = std::min(end, now + kGraceHeard);
    if (saving > 0 && now < start + kLongestSaving) end = std::max(end, now + kGraceHeard);
  } while (now < end);
}

}  // namespace

Saving::Saving() { ++saving; }
Saving::~Saving() { --saving; }

void note_heard() { loss().heard = true; }

void check_peers() {
  if (!loss().known) return;
  note_heard();
  const std::lock_guard lock(loss().mutex);
  throw RunError(loss().text + "; the output of the other ranks may say why");
}

std::function<void(const LostPeer&)> end_process(int rank) {
  return [rank](const LostPeer& lost) {
    const std::string text = temper::str("rank ", rank, ": ", lost.text());
    {
      const std::lock_guard lock(loss().mutex);
      if (!loss().known) loss().text = text;
      loss().known = true;
    }
    // Detached: a run that fails by itself, or is told to end, does not wait for this.
    std::thread([said = "temper: " + text + "; the run cannot go on\n",
                 grace = lost.how == LostPeer::How::kEnded ? kGrace : std::chrono::seconds(0)] {
      wait_for_end(grace);
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, said.data(), said.size());
      ::_exit(1);
    }).detach();
  };
}

NewConnections::NewConnections() : before_(connections()) {}

void NewConnections::notice_loss() const {
  for (const int fd : connections())
    if (!before_.contains(fd)) notice_silence(fd);
}

}  // namespace temper::dist
