#include "temper/http/server.h"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/liveness.h"
#include "temper/base/memory.h"
#include "temper/http/connection.h"

namespace temper::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::beast::error_code;

constexpr int kBacklog = 1024;
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::milliseconds(200);  // after an accept that failed
constexpr int64_t kSurplus = 32;      // connections beyond the limits, for /health and refusals
constexpr int64_t kOtherFiles = 128;  // other files that the program may have open
constexpr int64_t kWorthGivingBack = int64_t{1} << 20;
constexpr int kTimesGivenBack = 3;  // a second each: what was made of a body goes after it

// The number of connections, at most `asked`, that the process may have files open for.
int64_t most_connections(int64_t asked) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return asked;
  const auto wanted = static_cast<rlim_t>(asked + kSurplus + kOtherFiles);
  if (limit.rlim_cur < wanted) {
    rlimit more = limit;
    more.rlim_cur = std::min(wanted, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  const auto files = static_cast<int64_t>(std::min(limit.rlim_cur, wanted));  // may be unlimited
  return std::min(asked, std::max(files - kSurplus - kOtherFiles, int64_t{8}));
}

}  // namespace

std::string why_not_listening(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return temper::str("cannot listen on ", host, ": the host has no address here (",
                       ::gai_strerror(error),
                       "); expected a name or an address of this machine, or 0.0.0.0 for all of "
                       "its addresses");
  ::freeaddrinfo(found);
  constexpr const char* kElsewhere = "the address is not one of this machine";
  if (port == 0) return temper::str("cannot listen on ", host, ": ", kElsewhere);
  return temper::str("cannot listen on ", host, " port ", port, ": the port is in use, or ",
                     kElsewhere, "; --port 0 chooses a free one");
}

std::string_view RequestHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  Impl(Handler& handler, const Limits& limits) : hub(std::make_shared<Hub>(handler, limits)) {}

  bool listen(const tcp::endpoint& endpoint);
  void accept();
  void on_accept(error_code error, tcp::socket socket);
  void take(tcp::socket socket);
  bool make_room(const std::string& peer);
  void look();
  void go_on();
  void end();

  std::shared_ptr<Hub> hub;
  tcp::acceptor acceptor{hub->io};
  asio::steady_timer looks{hub->io}, pause{hub->io};
  Clock::time_point gave_back = Clock::now();
  int gives_back = 0;
  bool accepts = false, looks_again = false;  // under way
};

bool Server::Impl::listen(const tcp::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return false;
  error_code ignored;
  // Two servers never share a port.
  acceptor.set_option(tcp::acceptor::reuse_address(true), ignored);
  if (endpoint.protocol() == tcp::v6()) acceptor.set_option(asio::ip::v6_only(false), ignored);
  notice_silence(acceptor.native_handle());
  if (hub->limits.notice_unanswered) notice_unanswered(acceptor.native_handle());
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (error) acceptor.close(ignored);
  return !error;
}

void Server::Impl::accept() {
  acceptor.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
    self->accepts = false;
    self->on_accept(error, std::move(socket));
  });
  accepts = true;
}

void Server::Impl::on_accept(error_code error, tcp::socket socket) {
  if (hub->stopping) return;
  if (!error) {
    try {
      take(std::move(socket));
    } catch (const std::exception&) {
      // No memory for one more: its socket is closed.
    }
    return accept();
  }
  // For instance, the process has no file descriptors left.
  make_room("");
  pause.expires_after(kPatience);
  pause.async_wait([self = shared_from_this()](error_code) {
    self->accepts = false;
    if (!self->hub->stopping) self->accept();
  });
  accepts = true;
}

// Closes the connection that has waited longest for a request; only of `peer`, an address, unless
// that is empty.
bool Server::Impl::make_room(const std::string& peer) {
  const auto now = Clock::now();
  std::shared_ptr<Connection> found;
  int idleness = 0;
  for (const auto& one : hub->connections) {
    if (!peer.empty() && one->peer() != peer) continue;
    const int its = one->idleness(now);
    if (its > idleness || (its == idleness && its > 0 && one->since() < found->since())) {
      idleness = its;
      found = one;
    }
  }
  if (found) found->close();
  return found != nullptr;
}

void Server::Impl::take(tcp::socket socket) {
  error_code error;
  const tcp::endpoint client = socket.remote_endpoint(error);
  if (error) return;
  socket.set_option(tcp::no_delay(true), error);
  const std::string peer = client.address().to_string();
  int64_t of_peer = 0;
  for (const auto& one : hub->connections) of_peer += one->peer() == peer;
  // One that was refused and has yet to go counts as well: with its place alone there is no room.
  while (of_peer >= hub->limits.connections_of_address && make_room(peer)) --of_peer;
  bool surplus = of_peer >= hub->limits.connections_of_address;
  auto open = static_cast<int64_t>(hub->connections.size());
  if (!surplus)
    while (open >= hub->limits.connections && make_room("")) --open;
  surplus = surplus || open >= hub->limits.connections;
  if (surplus && open >= hub->limits.connections + kSurplus) return;
  const auto connection = std::make_shared<Connection>(hub, std::move(socket), peer, surplus);
  hub->connections.push_back(connection);
  connection->listed_at(std::prev(hub->connections.end()));
  connection->start();
}

// Begins, or goes on after a failure, to accept and to look.
void Server::Impl::go_on() {
  if (!hub->stopping && !accepts) accept();
  if (!looks_again) look();
}

void Server::Impl::look() {
  const auto now = Clock::now();
  for (auto it = hub->connections.begin(); it != hub->connections.end();) {
    const std::shared_ptr<Connection> one = *it++;
    try {
      one->look(now);
    } catch (const std::exception&) {
      one->close();
    }
  }
  if (hub->released_bytes > kWorthGivingBack) {
    hub->released_bytes = 0;
    gives_back = kTimesGivenBack;
  }
  if (gives_back > 0 && now - gave_back > std::chrono::seconds(1)) {
    --gives_back;
    gave_back = now;
    give_back_memory();
  }
  if (hub->stopping && hub->connections.empty()) return;
  looks.expires_after(kBetweenLooks);
  looks.async_wait([self = shared_from_this()](error_code) {
    self->looks_again = false;
    self->look();
  });
  looks_again = true;
}

void Server::Impl::end() {
  hub->stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  pause.cancel();
  for (auto it = hub->connections.begin(); it != hub->connections.end();) {
    const std::shared_ptr<Connection> one = *it++;
    one->stop();
  }
  looks.cancel();
}

Server::Server(Handler& handler, const Limits& limits)
    : impl_(std::make_shared<Impl>(handler, limits)) {}
Server::~Server() = default;

int Server::bind(const std::string& host, int port) {
  Limits& limits = impl_->hub->limits;
  limits.connections = most_connections(limits.connections);
  limits.connections_of_address = std::min(limits.connections_of_address, limits.connections);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return 0;
  bool listens = false;
  for (const addrinfo* one = found; one && !listens; one = one->ai_next) {
    tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::copy_n(reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen,
                reinterpret_cast<char*>(endpoint.data()));
    endpoint.resize(one->ai_addrlen);
    listens = impl_->listen(endpoint);
  }
  ::freeaddrinfo(found);
  error_code ignored;
  return listens ? impl_->acceptor.local_endpoint(ignored).port() : 0;
}

void Server::run() {
  while (true) {
    try {
      impl_->go_on();
      impl_->hub->io.run();
      return;
    } catch (const std::exception&) {
      // What one connection lacks (memory, for instance) is no reason to end the others.
      std::this_thread::sleep_for(kPatience);
    }
  }
}

void Server::stop() {
  asio::post(impl_->hub->io, [impl = impl_] { impl->end(); });
}

Server::Counts Server::counts() const {
  return {impl_->hub->num_connections, impl_->hub->buffered_bytes};
}

}  // namespace temper::http
