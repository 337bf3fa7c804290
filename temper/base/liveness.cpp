#include "temper/base/liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace temper {
namespace {

// Keep-alive probes of TCP: seconds of silence before the first, seconds between two, their number.
constexpr int kIdle = 10, kBetween = 5, kQuestions = 4;
constexpr int kUnanswered = 20000;  // milliseconds that sent data may stay unacknowledged

}  // namespace

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

}  // namespace temper
