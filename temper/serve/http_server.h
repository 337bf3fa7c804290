// HTTP/1.1 for servers that strangers reach. One thread reads and writes all connections, so that a
// thousand that wait cost a thousand buffers and no thread; every wait has a deadline and every
// buffer a bound. Only http_server.cpp and http_connection.cpp know the HTTP library (Boost.Beast's
// parser on Asio).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;  // names as they are sent

struct HttpLimits {
  int64_t header_bytes = int64_t{32} << 10;  // of a head, its request line included: 431
  // Of all bodies together that are received or being handled, beyond the first 64 KiB of each:
  // the one that goes over it is answered 503.
  int64_t buffered_bytes = int64_t{256} << 20;
  // A connection more takes the place of one that waits for a request. Where all have one, it is
  // asked for its head and answered 503 (what HttpHandler::admit answers at once still is).
  int64_t connections = 2048;
  int64_t connections_of_address = 2048;  // from one IP address
  double head_seconds = 10;               // from a head's first byte, and from connecting
  double idle_seconds = 60;               // between the requests of a connection
  double body_seconds = 20;               // for a body, and beyond that
  double body_bytes_per_second = 16384;   // a second more for each so many bytes
  double write_seconds = 30;              // in which the client takes something of what is sent
  bool notice_unanswered = false;         // as dist::notice_unanswered
};

// The head of a request, whose text is the client's: well-formed, and nothing else.
struct RequestHead {
  std::string method;
  std::string path;   // percent-decoded, without the query
  std::string query;  // as it came, without "?"
  std::string peer;   // the client's IP address
  bool has_body = false;
  std::optional<uint64_t> content_length;  // absent: no body, or a chunked one
  Headers headers;                         // in lower case

  // The value of a header, empty where it is absent; of several the first.
  std::string_view header(std::string_view lower_case_name) const;
};

struct Answer {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  Headers headers = {};
};

// A request whose body was received, and its answer: whole, or a stream. Its functions may be
// called from any thread, and none waits. What is sent after the client has gone is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;

  const RequestHead& head() const { return head_; }
  // The body counts as buffered until it is dropped, or the answer has ended.
  const std::string& body() const { return body_; }
  virtual void drop_body() = 0;

  virtual void answer(Answer answer) = 0;
  // A stream begins with status 200; heartbeat: sent whenever nothing was for so many seconds, so
  // that both ends notice when the other is gone.
  virtual void begin_stream(std::string type, std::string heartbeat = {},
                            double heartbeat_seconds = 0) = 0;
  virtual void send(std::string part) = 0;
  // whole: false: the client is to see that something is missing.
  virtual void end_stream(bool whole) = 0;

  // Enough is on its way to the client: what is sent now would only wait in memory.
  virtual bool is_full() const = 0;
  virtual bool is_gone() const = 0;
  // Called on the connections' thread, without locks, when is_full() ends or is_gone() begins.
  // Null: no more. A call that has begun may still end after that.
  virtual void on_change(std::function<void()> changed) = 0;

 protected:
  RequestHead head_;
  std::string body_;
};

// What is to be done with a request, decided by its head.
struct Admission {
  // At once: the body is not read, and where there is one the connection ends.
  std::optional<Answer> answer;
  // Else: called on the connections' thread when the body is there. It must not wait, and whoever
  // keeps the exchange answers it.
  std::function<void(std::shared_ptr<Exchange>)> handle;
  int64_t most_body_bytes = 0;  // a larger one is answered 413
  Headers headers = {};         // of every answer to this request
};

// What a server does. All functions are called on the connections' thread, and must not wait.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual Admission admit(const RequestHead& head) = 0;
  // The answer to what this layer refuses by itself: 400, 408, 413, 417, 431, 500, 503.
  virtual Answer refusal(int status, const std::string& message) = 0;
  // An answer has ended. bytes: of its body. status 0: the client left before there was one.
  virtual void done(const RequestHead& head, int status, int64_t bytes, double seconds) = 0;
};

class HttpServer {
 public:
  // `handler` outlives the server.
  HttpServer(HttpHandler& handler, const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Takes a port, 0 a free one; from here on clients can connect. Gives the port, or 0 where the
  // host has no address here or the port is taken.
  int bind(const std::string& host, int port);
  // Serves on this thread until stop(), and until what is being answered then has its answer.
  void run();
  // From any thread, at any time: no more connections and requests.
  void stop();

  struct Counts {
    int64_t connections = 0;  // open
    int64_t buffered_bytes = 0;
  };
  Counts counts() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace temper::serve
