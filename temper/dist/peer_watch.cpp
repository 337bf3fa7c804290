#include "temper/dist/peer_watch.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/dist/liveness.h"

namespace temper::dist {
namespace {

constexpr auto kGrace = std::chrono::seconds(10);
constexpr int kConnectMilliseconds = 60'000;
constexpr int32_t kGoodbye = -1;  // else the number of a rank that is gone

void close_socket(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> resolve(const std::string& host,
                                                             const std::string& port,
                                                             bool listens) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = listens ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  check(error == 0, "cannot find the address of ", host, ": ", ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

// Listens at a port that is free; gives "HOST PORT".
std::pair<int, std::string> listen_at(const std::string& address) {
  const auto found = resolve(address, "0", true);
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

int connect_to(const std::string& place) {
  const size_t space = place.rfind(' ');
  const auto found = resolve(place.substr(0, space), place.substr(space + 1), false);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0, "cannot connect to ",
        place, ": ", std::strerror(errno));
  return fd;
}

int accept_from(int listening) {
  pollfd waits{listening, POLLIN, 0};
  const bool comes = ::poll(&waits, 1, kConnectMilliseconds) == 1;
  const int fd = comes ? ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  check(fd >= 0, "another rank did not connect");
  return fd;
}

}  // namespace

PeerWatch::PeerWatch(Group& group, const std::string& address, std::function<void(int)> lost)
    : rank_(group.rank()), size_(group.size()), address_(address), lost_(std::move(lost)) {
  if (size_ == 1) return;
  auto [listening, place] = listen_at(address);
  const std::vector<std::string> places = group.all_gather(place);
  try {
    next_ = connect_to(places[static_cast<size_t>((rank_ + 1) % size_)]);
    previous_ = accept_from(listening);
  } catch (...) {
    close_socket(listening);
    close_socket(next_);
    throw;
  }
  close_socket(listening);
  for (const int fd : {next_, previous_}) {
    notice_silence(fd);
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

void PeerWatch::tell(int fd, int rank) const {
  const int32_t word = rank;
  if (fd >= 0) ::send(fd, &word, sizeof word, MSG_NOSIGNAL);
}

// Until this rank ends, a rank is lost, or both neighbours have ended in order.
void PeerWatch::watch() {
  std::array<int, 2> neighbours{next_, previous_};  // -1: ended in order
  while (neighbours[0] >= 0 || neighbours[1] >= 0) {
    std::array<pollfd, 3> fds{
        {{wake_, POLLIN, 0}, {neighbours[0], POLLIN, 0}, {neighbours[1], POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) return;
    for (size_t i = 0; i < neighbours.size(); ++i) {
      if (fds[i + 1].revents == 0) continue;
      const int step = i == 0 ? 1 : size_ - 1;
      int32_t word = (rank_ + step) % size_;  // it ended, unless it says something else
      const ssize_t n = ::recv(neighbours[i], &word, sizeof word, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n == sizeof word && word == kGoodbye) {
        neighbours[i] = -1;
        continue;
      }
      tell(neighbours[1 - i], word);
      lost_(word);
      return;
    }
  }
}

std::function<void(int)> end_process(int rank) {
  return [rank](int lost) {
    // Detached: a run that fails by itself, or is told to end, does not wait for this.
    std::thread([rank, lost] {
      std::this_thread::sleep_for(kGrace);
      const std::string text =
          temper::str("temper: rank ", rank, ": rank ", lost, " has ended; the run cannot go on\n");
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
      ::_exit(1);
    }).detach();
  };
}

}  // namespace temper::dist
