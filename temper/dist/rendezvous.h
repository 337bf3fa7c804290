// How ranks find each other's addresses. Sockets only; no c10d.
#pragma once

#include <netdb.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace temper::dist {

// The bounds of a wait for other ranks: time, and a request to stop.
class Patience {
 public:
  Patience(std::chrono::milliseconds most, std::function<bool()> stop);
  // Throws RunError "WHAT" with the seconds waited once the time is over, or that the run was asked
  // to stop.
  void check(const std::string& what) const;
  std::chrono::milliseconds left() const;  // at least 1
  // check(), then sleeps a little. A long wait is told on standard error, once.
  void pause(const std::string& what) const;

 private:
  std::chrono::steady_clock::time_point begin_, end_;
  mutable bool told_ = false;
  std::function<bool()> stop_;
};

// getaddrinfo() for stream sockets. Numeric addresses are known at once; a name is looked up on a
// thread of its own, since nothing can interrupt that: if this object goes first, the thread lives
// on until the system's resolver gives up.
class NameLookup {
 public:
  using Resolve = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

  // Begins the lookup. service: a port number. listens: asks for addresses to listen at. resolve:
  // getaddrinfo(), or a test's replacement.
  NameLookup(const std::string& host, const std::string& service, bool listens,
             Resolve resolve = &::getaddrinfo);
  // Waits at most that long; true: the answer is there.
  bool wait_for(std::chrono::milliseconds most);
  // Both only after wait_for() gave true. The first address of the list, owned by this object;
  // null: none was found.
  const addrinfo* addresses() const { return answer_.list.get(); }
  // Why none was found; "": there are some.
  std::string error() const;

 private:
  struct Free {
    void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
  };
  struct Answer {
    int error = 0;
    std::unique_ptr<addrinfo, Free> list;
  };
  static Answer ask(const std::string& host, const std::string& service, int flags,
                    Resolve resolve);
  std::future<Answer> coming_;
  Answer answer_;
};

// A socket that is connected to this address and does not block, which the caller closes; -1, with
// errno: there is none. Tries for `most` (then ETIMEDOUT), however long the system would. `look` is
// called ten times a second meanwhile; what it throws is passed on.
int connect_within(
    const addrinfo& to, std::chrono::milliseconds most, const std::function<void()>& look = [] {});

// Numeric addresses of the two ends of a connection.
struct Route {
  std::string local, remote;
  bool loopback = false;  // the local end is a loopback address
};

// Connects to HOST:PORT (a name, an IPv4 or an IPv6 address) and closes again, trying until it
// answers. Throws RunError as Patience does. resolve: how names are looked up.
Route find_route(const std::string& host, uint16_t port, const Patience& patience,
                 NameLookup::Resolve resolve = &::getaddrinfo);

// A route as text for other ranks, "0 10.0.0.2 10.0.0.1", and back. Throws RunError for other text.
std::string to_text(const Route& route);
Route parse_route(const std::string& text);

// The address for this rank to listen on, given its own route to the master and all ranks'. That is
// the local end of its own; where this is a loopback address though some ranks are on other hosts,
// the master's address as they see it: whoever reaches the master over loopback is on its host.
std::string choose_address(const Route& own, const std::vector<Route>& all);

}  // namespace temper::dist
