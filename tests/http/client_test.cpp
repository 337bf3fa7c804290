// The client of rollout servers against servers that send without end.
#include "temper/http/client.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

using namespace temper::http;

namespace {

// Answers one connection with `begin`, and `part` again and again until so many bytes are sent.
class EndlessServer {
 public:
  EndlessServer(std::string begin, std::string part, size_t most)
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    url = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this, begin = std::move(begin), part = std::move(part), most] {
      const int client = client_ = ::accept(listener_, nullptr, nullptr);
      char request[4096];
      if (::recv(client, request, sizeof request, 0) > 0) {
        std::string block;
        while (!part.empty() && block.size() < 65536) block += part;
        ssize_t n = ::send(client, begin.data(), begin.size(), MSG_NOSIGNAL | MSG_WAITALL);
        while (n > 0 && sent < most) {
          n = ::send(client, block.data(), block.size(), MSG_NOSIGNAL);
          sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
        }
      }
    });
  }
  ~EndlessServer() {
    // A client that has left with data on its way leaves send() waiting.
    if (client_ >= 0) ::shutdown(client_, SHUT_RDWR);
    thread_.join();
    ::close(client_);
    ::close(listener_);
  }

  std::string url;
  std::atomic<size_t> sent{0};

 private:
  int listener_;
  std::atomic<int> client_{-1};
  std::thread thread_;
};

std::string failure(const std::string& url) {
  try {
    Client(parse_url(url), "", 60).get("/v1/models");
  } catch (const Failure& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what a server sends beside the body of its answer has a limit") {
  constexpr size_t kMost = size_t{1} << 30;
  const std::string head = "HTTP/1.1 200 OK\r\n", chunked = "Transfer-Encoding: chunked\r\n\r\n";
  const std::string parts[][2] = {{head, "a: b\r\n"},
                                  {head + "a: ", "b"},
                                  {head + chunked + "1", "0"},
                                  {head + chunked + "2\r\nab\r\n0\r\n", "a"}};
  for (const auto& [begin, part] : parts) {
    CAPTURE(begin);
    CAPTURE(part);
    EndlessServer server(begin, part, kMost);
    const std::string found = failure(server.url);
    // A head whose line is too long is refused by the library.
    CHECK_MESSAGE(!found.empty(), found);
    CHECK(server.sent < kMost / 2);
  }
  EndlessServer lines(head, "a: b\r\n", kMost);
  CHECK(failure(lines.url).find("expected at most 1048576 bytes beside the body") !=
        std::string::npos);
}

TEST_CASE("a long answer in small chunks is none that has no end") {
  std::string answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 300000; ++i) answer += "1\r\na\r\n";
  answer += "0\r\n\r\n";
  EndlessServer server(answer, "", 0);
  CHECK(Client(parse_url(server.url), "", 60).get("/v1/models").size() == 300000);
}
