#include "temper/dist/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/stopped.h"

namespace temper::dist {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPause = 50ms;
constexpr auto kSilence = 15s;        // waiting time before standard error says so
constexpr auto kLongestConnect = 3s;  // longest attempt at one address before the next is tried

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

std::string numeric(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
  return text;
}

using Closer = std::unique_ptr<const int, void (*)(const int*)>;
Closer closes(const int& fd) {
  return {&fd, [](const int* f) { ::close(*f); }};
}

// The error of the attempt; 0: connected, and `route` is set.
int try_connect(const addrinfo& to, const Patience& patience, const std::string& what,
                Route& route) {
  const int fd = connect_within(to, kLongestConnect, [&] { patience.check(what); });
  if (fd < 0) return errno;
  const Closer closer = closes(fd);
  sockaddr_storage local{}, remote{};
  socklen_t local_size = sizeof local, remote_size = sizeof remote;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_size) != 0)
    return errno;
  route = {numeric(local, local_size), numeric(remote, remote_size), is_loopback(local)};
  return 0;
}

}  // namespace

int connect_within(const addrinfo& to, std::chrono::milliseconds most,
                   const std::function<void()>& look) {
  const int fd = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  Closer closer = closes(fd);
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  const Clock::time_point until = Clock::now() + most;
  for (pollfd waiting{fd, POLLOUT, 0}; error == EINPROGRESS;) {
    look();
    if (Clock::now() >= until) {
      error = ETIMEDOUT;
      break;
    }
    if (::poll(&waiting, 1, 100) <= 0) continue;
    socklen_t size = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == 0) {
    closer.release();
    return fd;
  }
  closer.reset();
  errno = error;
  return -1;
}

Patience::Patience(std::chrono::milliseconds most, std::function<bool()> stop)
    : begin_(Clock::now()), end_(begin_ + most), stop_(std::move(stop)) {}

void Patience::check(const std::string& what) const {
  if (stop_ && stop_()) throw Stopped("asked to stop while waiting: " + what);
  if (Clock::now() < end_) return;
  const double waited = std::chrono::duration<double>(end_ - begin_).count();
  throw RunError(
      temper::str(what, " within ", waited,
                  " s; is every rank started? TEMPER_TIMEOUT_SECONDS sets another time"));
}

std::chrono::milliseconds Patience::left() const {
  return std::max(1ms, std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()));
}

void Patience::pause(const std::string& what) const {
  check(what);
  if (!told_ && Clock::now() - begin_ > kSilence) {
    told_ = true;
    std::cerr << temper::str("waiting: ", what, "; ", left().count() / 1000,
                             " s are left (TEMPER_TIMEOUT_SECONDS)\n")
              << std::flush;
  }
  std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(kPause, left()));
}

NameLookup::Answer NameLookup::ask(const std::string& host, const std::string& service, int flags,
                                   Resolve resolve) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Answer answer;
  answer.error = resolve(host.c_str(), service.c_str(), &hints, &found);
  answer.list.reset(found);
  return answer;
}

NameLookup::NameLookup(const std::string& host, const std::string& service, bool listens,
                       Resolve resolve) {
  const int flags = listens ? AI_PASSIVE : 0;
  answer_ = ask(host, service, flags | AI_NUMERICHOST, &::getaddrinfo);
  if (answer_.error == 0) return;
  // Not std::async, whose future waits for the thread.
  std::packaged_task<Answer()> task([=] { return ask(host, service, flags, resolve); });
  coming_ = task.get_future();
  std::thread(std::move(task)).detach();
}

bool NameLookup::wait_for(std::chrono::milliseconds most) {
  if (!coming_.valid()) return true;
  if (coming_.wait_for(most) != std::future_status::ready) return false;
  answer_ = coming_.get();
  return true;
}

std::string NameLookup::error() const {
  return answer_.error == 0 ? "" : ::gai_strerror(answer_.error);
}

Route find_route(const std::string& host, uint16_t port, const Patience& patience,
                 NameLookup::Resolve resolve) {
  const std::string place =
      temper::str(host.find(':') == std::string::npos ? host : "[" + host + "]", ":", port);
  std::string what = "no answer from the first rank at " + place;
  while (true) {
    // A name may be announced only when its host has started.
    NameLookup lookup(host, std::to_string(port), false, resolve);
    while (!lookup.wait_for(kPause)) patience.pause(what + " (its name is being looked up)");
    std::string why = lookup.error();
    Route route;
    for (const addrinfo* a = lookup.addresses(); a; a = a->ai_next) {
      const int failed = try_connect(*a, patience, what, route);
      if (failed == 0) return route;
      if (why.empty()) why = std::strerror(failed);
    }
    what = "no answer from the first rank at " + place + " (" + why + ")";
    patience.pause(what);
  }
}

std::string to_text(const Route& route) {
  return temper::str(route.loopback ? 1 : 0, " ", route.local, " ", route.remote);
}

Route parse_route(const std::string& text) {
  std::istringstream in(text);
  Route route;
  check(static_cast<bool>(in >> route.loopback >> route.local >> route.remote),
        "another rank's address is `", text.substr(0, 100),
        "`; do all ranks run the same version?");
  return route;
}

std::string choose_address(const Route& own, const std::vector<Route>& all) {
  if (!own.loopback) return own.local;
  const auto outside =
      std::find_if(all.begin(), all.end(), [](const Route& r) { return !r.loopback; });
  return outside == all.end() ? own.local : outside->remote;
}

}  // namespace temper::dist
