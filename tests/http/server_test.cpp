// The HTTP server alone, with clients that write bytes: what it answers, refuses and gives up.
#include "temper/http/server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "temper/base/work_queue.h"

using namespace temper::http;

namespace {

constexpr double kLong = 60;  // seconds: no test waits so long unless it fails

class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // What comes until `enough` says so, or the connection ends.
  std::string read(const std::function<bool(const std::string&)>& enough) {
    std::string out;
    char part[4096];
    while (!enough(out)) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(kLong * 1000)) <= 0) return out + "[TIMEOUT]";
      const ssize_t n = ::recv(fd_, part, sizeof part, 0);
      if (n <= 0) return out;
      out.append(part, static_cast<size_t>(n));
    }
    return out;
  }
  std::string all() {
    return read([](const std::string&) { return false; });
  }
  std::string until(const std::string& end) {
    return read([&](const std::string& text) { return text.find(end) != std::string::npos; });
  }

 private:
  int fd_;
};

// GET /now: "now" at once. POST /echo: the body. GET /stream: parts of a stream until the test ends
// it. GET /never: no answer. Bodies of at most 1000 bytes; /large: any.
class Echo : public Handler {
 public:
  Admission admit(const RequestHead& head) override {
    if (head.path == "/now") return {.answer = Answer{200, "now", "text/plain"}, .handle = {}};
    if (head.path == "/throws_at_head") throw std::runtime_error("a failure of admit");
    if (head.path == "/refused") return {.answer = Answer{401, "no"}, .handle = {}};
    Admission out{
        .answer = {}, .handle = {}, .most_body_bytes = head.path == "/large" ? 1 << 30 : 1000};
    out.handle = [this](std::shared_ptr<Exchange> exchange) {
      if (exchange->head().path == "/stream" || exchange->head().path == "/never") {
        exchange->on_change([this, e = exchange.get()] {
          if (e->is_gone()) ++gone;
        });
        const std::lock_guard lock(mutex);
        kept.push_back(exchange);
        return;
      }
      if (exchange->head().path == "/throws") throw std::runtime_error("a failure of handle");
      if (exchange->head().path == "/throws_odd") throw 3;
      if (exchange->head().path == "/job_throws") {
        workers.run([exchange] {
          exchange->end_stream(false);
          throw std::runtime_error("a failure of a job");
        });
        return;
      }
      workers.run([exchange] {
        exchange->answer({200, exchange->head().path + " " +
                                   std::to_string(exchange->body().size()) + " " +
                                   exchange->body().substr(0, 100)});
      });
    };
    return out;
  }
  Answer refusal(int status, const std::string& message) override { return {status, message}; }
  void done(const RequestHead& head, int status, int64_t, double) override {
    last_status = status;
    if (head.path == "/throws_after") throw std::runtime_error("a failure of done");
  }

  std::shared_ptr<Exchange> take() {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      const std::lock_guard lock(mutex);
      if (kept.empty()) continue;
      auto first = kept.front();
      kept.erase(kept.begin());
      return first;
    }
  }

  std::atomic<int> gone{0}, last_status{-1};
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> kept;
  temper::WorkQueue workers{{.threads = 2}};
};

struct Running {
  explicit Running(const Limits& limits = {}) : server(echo, limits) {
    port = server.bind("127.0.0.1", 0);
    REQUIRE(port > 0);
    thread = std::thread([this] { server.run(); });
  }
  ~Running() {
    server.stop();
    thread.join();
  }
  std::string ask(const std::string& text) const {
    RawClient client(port);
    client.send(text);
    return client.all();
  }
  Echo echo;
  Server server;
  int port = 0;
  std::thread thread;
};

const std::string kHost = "Host: localhost\r\n";
std::string post(const std::string& path, const std::string& headers, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\n" + kHost + headers + "\r\n" + body;
}
std::string closing(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\n" + kHost + "Connection: close\r\n\r\n";
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("requests, answers, and connections that stay") {
  const Running r;
  const std::string now = r.ask(closing("/now"));
  CHECK(now.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(has(now, "\r\nContent-Length: 3\r\n"));
  CHECK(now.ends_with("\r\n\r\nnow"));
  RawClient client(r.port);
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "Content-Length: 5\r\n", "hello"));
    CHECK(has(client.until("hello"), "/echo 5 hello"));
  }
  client.send(
      post("/a%2Fb?c=d", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"));
  CHECK(has(client.until("abcde"), "/a/b 5 abcde"));
  client.send("HEAD /now HTTP/1.1\r\n" + kHost + "\r\nGET /now HTTP/1.1\r\n" + kHost + "\r\n");
  const std::string two = client.until("now");
  CHECK(has(two, "Content-Length: 3\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 200"));
  // Pipelined: in order.
  client.send(post("/one", "Content-Length: 1\r\n", "1") +
              post("/two", "Content-Length: 1\r\n", "2"));
  const std::string both = client.until("/two 1 2");
  CHECK(both.find("/one 1 1") < both.find("/two 1 2"));
  CHECK(has(r.ask("GET /now HTTP/1.0\r\n\r\n"), "Connection: close"));
}

TEST_CASE("a client that asks first is told to go on, unless its body is too large") {
  const Running r;
  RawClient client(r.port);
  client.send(post("/echo", "Content-Length: 2\r\nExpect: 100-continue\r\n", ""));
  CHECK(client.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  CHECK(has(client.until("ab"), "/echo 2 ab"));
  const std::string large =
      r.ask(post("/echo", "Content-Length: 2000\r\nExpect: 100-continue\r\n", ""));
  CHECK(large.starts_with("HTTP/1.1 413"));
  CHECK(r.ask(post("/echo", "Content-Length: 2\r\nExpect: more\r\n", ""))
            .starts_with("HTTP/1.1 417"));
}

TEST_CASE("bodies beyond the limit are not read, chunked ones neither") {
  const Running r;
  CHECK(r.ask(post("/echo", "Content-Length: 1099511627776\r\n", "")).starts_with("HTTP/1.1 413"));
  std::string chunks;
  for (int i = 0; i < 40; ++i) chunks += "40\r\n" + std::string(64, 'x') + "\r\n";
  CHECK(r.ask(post("/echo", "Transfer-Encoding: chunked\r\n", chunks)).starts_with("HTTP/1.1 413"));
  CHECK(r.ask(post("/echo", "Transfer-Encoding: chunked\r\n", "fffffffffffffff\r\n"))
            .starts_with("HTTP/1.1 413"));
  // Who is refused by the head is answered, though the body goes on.
  CHECK(r.ask(post("/refused", "Content-Length: 3000000\r\n", std::string(3000000, 'x')))
            .starts_with("HTTP/1.1 401"));
}

TEST_CASE("heads have a limit, and shapes that are read in several ways are refused") {
  const Running r;
  CHECK(r.ask("GET /now HTTP/1.1\r\n" + kHost + "X: " + std::string(40000, 'x') + "\r\n\r\n")
            .starts_with("HTTP/1.1 431"));
  std::string lines = "GET /now HTTP/1.1\r\n" + kHost;
  for (int i = 0; i < 20000; ++i) lines += "a: b\r\n";
  CHECK(r.ask(lines).starts_with("HTTP/1.1 431"));
  CHECK(r.ask("GET /" + std::string(100000, 'a')).starts_with("HTTP/1.1 431"));
  const std::string chunked = "Transfer-Encoding: chunked\r\n", zero = "0\r\n\r\n";
  const std::vector<std::string> shapes{
      post("/echo", "Content-Length: 5\r\n" + chunked, zero),
      post("/echo", chunked + "Content-Length: 5\r\n", zero),
      post("/echo", "Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
      post("/echo", "Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
      post("/echo", "Content-Length: -1\r\n", ""),
      post("/echo", "Content-Length: +5\r\n", "hello"),
      post("/echo", "Content-Length: 0x5\r\n", "hello"),
      post("/echo", "Content-Length: 5, 6\r\n", "hello"),
      post("/echo", "Content-Length: 18446744073709551616\r\n", ""),
      post("/echo", "Content-Length: \r\n", ""),
      post("/echo", "Transfer-Encoding: gzip\r\n", ""),
      post("/echo", "Transfer-Encoding: gzip, chunked\r\n", zero),
      post("/echo", "Transfer-Encoding: xchunked\r\n", zero),
      post("/echo", chunked + chunked, zero),
      post("/echo", "Transfer-Encoding : chunked\r\n", zero),
      post("/echo", chunked, "zz\r\n"),
      post("/echo", chunked, "-1\r\n\r\n"),
      post("/echo", chunked, "3\r\nabcde\r\n0\r\n\r\n"),
      post("/echo", chunked, "10000000000000000\r\n"),
      post("/echo", kHost, ""),
      std::string("GET /now HTTP/1.1\r\n\r\n"),
      "GET now HTTP/1.1\r\n" + kHost + "\r\n",
      "GET /%zz HTTP/1.1\r\n" + kHost + "\r\n",
      "GET /a\x01 HTTP/1.1\r\n" + kHost + "\r\n",
      "GET /now HTTP/3.0\r\n" + kHost + "\r\n",
      "GET  /now HTTP/1.1\r\n" + kHost + "\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
      "GET /now HTTP/1.1\nHost: a\n\n" + std::string(50, 'x')};
  for (const std::string& bad : shapes) {
    const std::string answer = r.ask(bad);
    CHECK_MESSAGE(answer.starts_with("HTTP/1.1 4"), bad.substr(0, 200), "\n->\n", answer);
    CHECK(answer.find("HTTP/1.1", 1) == std::string::npos);
  }
  std::string extension = post("/echo", chunked, "1;" + std::string(200000, 'x'));
  CHECK(r.ask(extension).starts_with("HTTP/1.1 4"));
  CHECK(has(r.ask(closing("/now")), "now"));
}

TEST_CASE("requests that come before the answer to the first one wait, however many they are") {
  Running r;
  constexpr int kMany = 3000;  // more bytes than are kept
  const std::string one = "GET /now HTTP/1.1\r\n" + kHost + "\r\n";
  std::string rest;
  for (int i = 0; i < kMany; ++i) rest += one;
  RawClient client(r.port);
  client.send("GET /never HTTP/1.1\r\n" + kHost + "\r\n" + one);
  const auto first = r.echo.take();
  std::thread sends([&] { client.send(rest + closing("/now")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they are there
  CHECK_FALSE(first->is_gone());
  first->answer({200, "late"});
  const std::string all = client.all();
  sends.join();
  size_t answers = 0;
  for (size_t at = 0; (at = all.find("HTTP/1.1 200 OK", at)) != all.npos; ++at) ++answers;
  CHECK(answers == kMany + 3);
  CHECK(has(all, "late"));
}

TEST_CASE("heads, bodies and connections that wait have deadlines") {
  Limits limits;
  limits.head_seconds = limits.idle_seconds = limits.body_seconds = 1;
  limits.body_bytes_per_second = 1e9;
  const Running r(limits);
  CHECK(r.ask("") == "");
  CHECK(r.ask("GET /now HT").starts_with("HTTP/1.1 408"));
  CHECK(r.ask(post("/echo", "Content-Length: 5\r\n", "he")).starts_with("HTTP/1.1 408"));
  RawClient idle(r.port);
  idle.send("GET /now HTTP/1.1\r\n" + kHost + "\r\n");
  CHECK(idle.all().ends_with("now"));
  // A byte now and then does not help.
  RawClient drips(r.port);
  std::atomic<bool> over{false};
  std::thread dripping([&] {
    while (!over) {
      drips.send("G");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  CHECK(has(drips.all(), "408"));
  over = true;
  dripping.join();
}

TEST_CASE("connections that wait give their places to others") {
  Limits limits;
  limits.connections = 8;
  limits.head_seconds = kLong;
  Running r(limits);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 30; ++i) {
    silent.push_back(std::make_unique<RawClient>(r.port));
    silent.back()->send("GET /");
  }
  CHECK(has(r.ask(closing("/now")), "now"));
  CHECK(silent[0]->all() == "");
  // Those that are being answered keep theirs.
  std::vector<std::unique_ptr<RawClient>> busy;
  for (int i = 0; i < 8; ++i) {
    busy.push_back(std::make_unique<RawClient>(r.port));
    busy.back()->send(closing("/never"));
  }
  std::vector<std::shared_ptr<Exchange>> asked;
  for (int i = 0; i < 8; ++i) asked.push_back(r.echo.take());
  CHECK(has(r.ask(closing("/now")), "now"));
  CHECK(r.ask(post("/echo", "Content-Length: 1\r\n", "1")).starts_with("HTTP/1.1 503"));
  // Those that were refused, and are still there, make no room for others.
  std::vector<std::unique_ptr<RawClient>> refused;
  for (int i = 0; i < 6; ++i) {
    refused.push_back(std::make_unique<RawClient>(r.port));
    refused.back()->send(post("/echo", "Content-Length: 1000\r\n", "1"));
    CHECK(refused.back()->until("\r\n\r\n").starts_with("HTTP/1.1 503"));
  }
  for (const auto& one : asked) one->answer({200, "late"});
  for (const auto& one : busy) CHECK(has(one->all(), "late"));
}

TEST_CASE("bodies together have a limit of memory, beside which small ones pass") {
  Limits limits;
  limits.buffered_bytes = 1 << 20;
  Running r(limits);
  RawClient half(r.port);
  half.send(post("/large", "Content-Length: 2000000\r\n", std::string(1000000, 'x')));
  while (r.server.counts().buffered_bytes < 900000) std::this_thread::yield();
  CHECK(r.ask(post("/large", "Content-Length: 300000\r\n", std::string(300000, 'x')))
            .starts_with("HTTP/1.1 503"));
  CHECK(has(r.ask(post("/large", "Content-Length: 1000\r\nConnection: close\r\n",
                       std::string(1000, 'x'))),
            "/large 1000"));
  half.close();
  while (r.server.counts().buffered_bytes > 0) std::this_thread::yield();
  CHECK(has(r.ask(post("/large", "Content-Length: 900000\r\nConnection: close\r\n",
                       std::string(900000, 'x'))),
            "/large 900000"));
}

TEST_CASE("streams: parts, heartbeats, clients that go away and clients that do not read") {
  Limits limits;
  limits.write_seconds = 0.5;
  Running r(limits);
  {
    RawClient client(r.port);
    client.send("GET /stream HTTP/1.1\r\n" + kHost + "\r\n");
    const auto stream = r.echo.take();
    stream->begin_stream("text/event-stream", "beat", 0.2);
    stream->send("one");
    const std::string begin = client.until("beat\r\n");
    CHECK(has(begin, "Transfer-Encoding: chunked"));
    CHECK(has(begin, "3\r\none\r\n4\r\nbeat\r\n"));
    stream->end_stream(true);
    CHECK(client.until("0\r\n\r\n").ends_with("0\r\n\r\n"));
    client.send(closing("/now"));
    CHECK(client.all().ends_with("now"));
    CHECK(r.echo.gone == 0);
  }
  {
    RawClient client(r.port);
    client.send(closing("/stream"));
    const auto stream = r.echo.take();
    client.close();
    while (!stream->is_gone() || r.echo.gone == 0) std::this_thread::yield();
    CHECK(r.echo.gone == 1);
    stream->send("into nothing");
    stream->end_stream(true);
  }
  RawClient stalls(r.port);
  stalls.send(closing("/stream"));
  const auto stream = r.echo.take();
  stream->begin_stream("text/event-stream");
  int64_t sent = 0;
  while (!stream->is_gone()) {
    if (!stream->is_full()) {
      stream->send(std::string(65536, 'x'));
      sent += 65536;
    }
    std::this_thread::yield();
  }
  CHECK(sent < int64_t{64} << 20);  // what the kernel takes
  while (r.echo.gone < 2) std::this_thread::yield();
  CHECK(r.echo.gone == 2);
}

TEST_CASE("the end: what is being answered is answered, nothing else begins") {
  auto r = std::make_unique<Running>();
  RawClient client(r->port), idle(r->port);
  client.send("GET /never HTTP/1.1\r\n" + kHost + "\r\n");
  const auto asked = r->echo.take();
  idle.send("GET /now HTTP/1.1\r\n" + kHost + "\r\n");
  idle.until("now");
  r->server.stop();
  CHECK(idle.all() == "");
  asked->answer({200, "late"});
  const std::string answer = client.all();
  CHECK(has(answer, "Connection: close"));
  CHECK(answer.ends_with("late"));
  r.reset();
  asked->answer({200, "too late"});
}

TEST_CASE("what the functions of a server throw ends no other connection") {
  const Running r;
  RawClient other(r.port);  // stays
  other.send(post("/never", "Content-Length: 0\r\n", ""));
  const auto waiting = const_cast<Echo&>(r.echo).take();
  for (int i = 0; i < 2; ++i) {
    for (const char* path : {"/throws", "/throws_odd", "/throws_at_head"}) {
      CAPTURE(path);
      const std::string answer = r.ask(post(path, "Content-Length: 2\r\n", "ab"));
      CHECK(answer.starts_with("HTTP/1.1 500"));
      CHECK(has(answer, "Connection: close"));
    }
    CHECK(has(r.ask(post("/throws", "Content-Length: 0\r\n", "")), "a failure of handle"));
    CHECK(has(r.ask(closing("/throws_after")), "/throws_after 0 "));
    // The connection ends without an answer.
    CHECK(r.ask(post("/job_throws", "Content-Length: 0\r\n", "")).empty());
  }
  {
    // Clients that leave before their answer: what is thrown then is no answer.
    RawClient leaves(r.port);
    leaves.send(post("/never", "Content-Length: 0\r\n", ""));
    const auto left = const_cast<Echo&>(r.echo).take();
    left->on_change([] { throw std::runtime_error("a failure of on_change"); });
    leaves.close();
    while (!left->is_gone()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(has(r.ask(closing("/now")), "now"));
  waiting->answer({200, "after all"});
  CHECK(has(other.until("after all"), "HTTP/1.1 200"));
}
