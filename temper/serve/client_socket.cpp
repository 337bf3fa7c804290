#include "temper/serve/client_socket.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace temper::serve {
namespace {

struct Address {
  std::string host;
  int port = -1;
};

// `name`: getpeername or getsockname.
Address address_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (name(fd, at, &size) != 0 || ::getnameinfo(at, size, host, sizeof host, port, sizeof port,
                                                NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {host, std::atoi(port)};
}

}  // namespace

ClientSocket::ClientSocket(const std::string& address, int port, int local_port) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const Address peer = address_of(fd, ::getpeername);
    if (peer.port != port || peer.host != address) continue;
    if (address_of(fd, ::getsockname).port == local_port) fd_ = fd;
  }
}

bool ClientSocket::is_open() const {
  if (fd_ < 0) return true;
  char next;
  const ssize_t n = ::recv(fd_, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace temper::serve
