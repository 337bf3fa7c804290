#include "temper/dist/new_connections.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <string>

#include "temper/base/liveness.h"

namespace temper::dist {
namespace {

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

void NewConnections::notice_loss() const {
  for (const int fd : connections())
    if (!before_.contains(fd)) notice_silence(fd);
}

}  // namespace temper::dist
