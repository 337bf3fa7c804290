#include "temper/dist/liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <string>

namespace temper::dist {
namespace {

// Keep-alive probes of TCP: seconds of silence before the first, seconds between two, their number.
constexpr int kIdle = 10, kBetween = 5, kQuestions = 4;
constexpr int kUnanswered = 20000;  // milliseconds that sent data may stay unacknowledged

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

NewConnections::NewConnections() : before_(connections()) {}

void notice_silence(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kBetween);
  set(IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
}

void notice_unanswered(int socket) {
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnanswered, sizeof kUnanswered);
}

void NewConnections::notice_loss() const {
  for (const int fd : connections())
    if (!before_.contains(fd)) notice_silence(fd);
}

}  // namespace temper::dist
