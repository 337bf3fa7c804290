#include "temper/http/bytes_read.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace temper::http {
namespace {

// tcpi_bytes_received of Linux's tcp_info, whose header and glibc's cannot be read together.
constexpr size_t kBytesReceivedAt = 128;
constexpr int kTcpProtocol = 6, kTcpInfo = 11;

}  // namespace

int64_t bytes_read(int socket) {
  char info[256] = {};
  socklen_t size = sizeof info;
  uint64_t received = 0;
  if (::getsockopt(socket, kTcpProtocol, kTcpInfo, info, &size) != 0 ||
      size < kBytesReceivedAt + sizeof received)
    return 0;
  std::memcpy(&received, info + kBytesReceivedAt, sizeof received);
  int unread = 0;
  if (::ioctl(socket, FIONREAD, &unread) != 0) return 0;
  return std::max<int64_t>(static_cast<int64_t>(received) - unread, 0);
}

}  // namespace temper::http
