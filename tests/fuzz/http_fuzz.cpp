// Any bytes to an HTTP server, in two parts at the first byte's place: it answers with HTTP or
// closes the connection, does not wait for more once the client has ended, and goes on to serve.
// Seeds: tests/fuzz/seeds/http.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "temper/http/access.h"
#include "temper/http/server.h"
#include "temper/http/text.h"

namespace {
using namespace temper::http;

// Answers with the body; streams where the path says so.
class Echo : public Handler {
 public:
  Admission admit(const RequestHead& head) override {
    Admission admission{.most_body_bytes = 1 << 16, .headers = cors_headers(head)};
    const AccessRules rules{.host = "127.0.0.1"};
    std::optional<Denial> denial = check_page(rules, head);
    if (!denial) denial = check_key(rules, head);
    if (!denial) denial = check_json(head);
    if (denial) {
      admission.answer = refusal(denial->status, denial->message);
      return admission;
    }
    admission.handle = [](const std::shared_ptr<Exchange>& exchange) {
      if (exchange->head().path != "/stream") return exchange->answer({.body = exchange->body()});
      exchange->begin_stream("text/event-stream");
      exchange->send(exchange->body());
      exchange->end_stream(true);
    };
    return admission;
  }
  Answer refusal(int status, const std::string& message) override {
    return {.status = status, .body = for_log(message)};
  }
  void done(const RequestHead&, int, int64_t, double) override {}
};

int start() {
  // They serve until the process ends.
  static Echo& echo = *new Echo;
  static Server& server = *new Server(echo, {.header_bytes = 4096, .buffered_bytes = 1 << 20});
  const int port = server.bind("127.0.0.1", 0);
  if (port == 0) std::abort();
  std::thread([] { server.run(); }).detach();
  return port;
}

// A connection; what keeps the fuzzer from having one is no fault of the server.
int connected(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (;;) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
    const int error = errno;
    if (error != EADDRNOTAVAIL && error != EINTR) std::abort();
    ::close(fd);
  }
}

void send(int fd, std::string_view part) {
  while (!part.empty()) {
    const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    part.remove_prefix(static_cast<size_t>(n));
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int port = start();
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int fd = connected(port);
  const linger reset{1, 0};  // no port waits after the connection
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  const size_t first = std::min<size_t>(data[0], bytes.size());
  send(fd, bytes.substr(0, first));
  send(fd, bytes.substr(first));
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char part[4096];
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 20000) <= 0) std::abort();  // it waits for a client that has ended
    const ssize_t n = ::recv(fd, part, sizeof part, 0);
    if (n <= 0) break;
    answer.append(part, static_cast<size_t>(n));
  }
  ::close(fd);
  if (!answer.empty() && !std::string_view("HTTP/1.1 ").starts_with(answer.substr(0, 9))) {
    std::fprintf(stderr, "answer: %s\n", answer.c_str());
    std::abort();
  }
  return 0;
}
