// Any bytes as what a rollout server sends: the client has a body, or the failure says so, and
// nothing is waited for that cannot come. Seeds: tests/fuzz/seeds/client.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "temper/http/client.h"

namespace {
// Answers each connection with the bytes, whatever is asked.
class Server {
 public:
  Server() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&at), length) != 0 || ::listen(fd_, 16) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length) != 0)
      std::abort();
    port_ = ntohs(at.sin_port);
  }
  int port() const { return port_; }
  // Of one connection.
  void answer(std::string_view bytes) const {
    const int fd = ::accept(fd_, nullptr, nullptr);
    char request[4096];
    if (::recv(fd, request, sizeof request, 0) > 0)
      while (!bytes.empty()) {
        const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) break;
        bytes.remove_prefix(static_cast<size_t>(n));
      }
    ::shutdown(fd, SHUT_WR);
    while (::recv(fd, request, sizeof request, 0) > 0) {
    }
    ::close(fd);
  }

 private:
  int fd_, port_;
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper::http;
  static const Server server;
  static const ServerUrl url = parse_url("http://127.0.0.1:" + std::to_string(server.port()));
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::thread answering([&] { server.answer(bytes); });
  {
    Client client(url, "", 20);
    try {
      switch (data[0] % 3) {
        case 0:
          client.get("/v1/models");
          break;
        case 1:
          client.post("/v1/completions", "{}");
          break;
        default:
          client.follow_heartbeats("/heartbeats", [] {});
      }
    } catch (const Failure& e) {
      if (e.status < 0) std::abort();
    }
  }
  answering.join();
  return 0;
}
