// The client of rollout servers against servers that send without end.
#include "temper/http/client.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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
        if (part.empty()) ::shutdown(client, SHUT_WR);
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

namespace {

// A certificate of localhost that signs itself, until the year 2126, and its key.
constexpr const char* kCertificate = R"(-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUJrO6b74azYUtsEho8I5mtVjaTj0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzAyNTUxM1oYDzIxMjYxMTAz
MDI1NTEzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASk8Ht4jVNWtmRWwU+DQr0scrr8nBiiRESLbrvFTmc3SVXfVo3L/wSN
7MoQxyvdYbhW8Riq1Q2WQLoKSRC/z5Gco28wbTAdBgNVHQ4EFgQU1CnZpUku2iIv
Ydm3krRgFxsTorAwHwYDVR0jBBgwFoAU1CnZpUku2iIvYdm3krRgFxsTorAwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgKIFRxhotYkkZwRIls36nnD9WPFDXORBN+qMAc98rCdkCIGFD
YjQyw6LunNeeF9G1a8+aznAy8Q+IDQOZ83QizlnD
-----END CERTIFICATE-----
)";
constexpr const char* kKey = R"(-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxB3fycO6+Hig6sf0
m7m7F9m/lm/E2jrpfE/1DRFFj6ChRANCAASk8Ht4jVNWtmRWwU+DQr0scrr8nBii
RESLbrvFTmc3SVXfVo3L/wSN7MoQxyvdYbhW8Riq1Q2WQLoKSRC/z5Gc
-----END PRIVATE KEY-----
)";

// Answers each of `connections` connections over TLS; a handshake that the client breaks off is
// one.
class TlsServer {
 public:
  explicit TlsServer(int connections) {
    namespace asio = boost::asio;
    context_.use_certificate_chain(asio::buffer(std::string(kCertificate)));
    context_.use_private_key(asio::buffer(std::string(kKey)), asio::ssl::context::pem);
    thread_ = std::thread([this, connections] {
      for (int i = 0; i < connections; ++i) {
        asio::ssl::stream<asio::ip::tcp::socket> stream(io_, context_);
        acceptor_.accept(stream.lowest_layer());
        boost::system::error_code error;
        stream.handshake(asio::ssl::stream_base::server, error);
        std::string request;
        while (!error) {
          asio::read_until(stream, asio::dynamic_buffer(request), "\r\n\r\n", error);
          if (error) break;
          request.clear();
          asio::write(
              stream,
              asio::buffer(std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")),
              error);
        }
      }
    });
  }
  ~TlsServer() { thread_.join(); }
  std::string url(const std::string& host) const {
    return "https://" + host + ":" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::thread thread_;
};

}  // namespace

TEST_CASE("an answer that ends too early is none, wherever it ends") {
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CAPTURE(bytes);
    EndlessServer server(whole.substr(0, bytes), "", 0);
    CHECK(failure(server.url).find("before the answer was whole") != std::string::npos);
  }
  EndlessServer server("HTTP/1.1 200 OK\r\n\r\nhello", "", 0);  // up to the connection's end
  CHECK(Client(parse_url(server.url), "", 60).get("/v1/models") == "hello");
}

TEST_CASE("https: the server's certificate has to be one that this machine trusts, of that host") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("temper_certificate." + std::to_string(::getpid()));
  std::ofstream(file) << kCertificate;
  TlsServer server(3);
  CHECK(failure(server.url("127.0.0.1")).find("certificate") != std::string::npos);
  ::setenv("SSL_CERT_FILE", file.c_str(), 1);
  {
    Client client(parse_url(server.url("127.0.0.1")), "key", 60);
    CHECK(client.get("/v1/models") == "hello");
    CHECK(client.post("/v1/completions", "{}") == "hello");  // over the same connection
  }
  CHECK(failure(server.url("127.1")).find("certificate") != std::string::npos);
  ::unsetenv("SSL_CERT_FILE");
  std::filesystem::remove(file);
}
