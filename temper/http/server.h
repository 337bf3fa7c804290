// An HTTP/1.1 server for untrusted clients. One thread reads and writes all connections, so that a
// thousand waiting ones cost a thousand buffers and no thread; every wait has a deadline and every
// buffer a limit. Sources of this folder include the HTTP library (Boost.Beast's parser on Asio);
// this header does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::http {

using Headers = std::vector<std::pair<std::string, std::string>>;  // names as they are sent

struct Limits {
  int64_t header_bytes = int64_t{32} << 10;  // most of a head with its request line, else 431
  // Limit on all bodies together that are received or being handled, not counting the first 64 KiB
  // of each: the body that exceeds it is answered 503.
  int64_t buffered_bytes = int64_t{256} << 20;
  // Most open connections. One more takes the place of a connection that waits for a request. If
  // none waits, its head is read and answered 503 (what Handler::admit answers at once still
  // is).
  int64_t connections = 2048;
  int64_t connections_of_address = 2048;  // most from one IP address
  double head_seconds = 10;               // for a head: from its first byte, and from connecting
  double idle_seconds = 60;               // between the requests of a connection
  double body_seconds = 20;               // for a body, and in addition
  double body_bytes_per_second = 16384;   // one second for each so many bytes of it
  double write_seconds = 30;              // most time in which a client reads nothing of an answer
  bool notice_unanswered = false;         // as notice_unanswered
};

// The head of a request. Its text is untrusted: it is well-formed, and nothing more.
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
  // The body counts towards Limits::buffered_bytes until it is dropped, or the answer has
  // ended.
  const std::string& body() const { return body_; }
  virtual void drop_body() = 0;

  virtual void answer(Answer answer) = 0;
  // Begins a streamed answer with status 200. heartbeat: text that is sent whenever nothing was
  // sent for so many seconds, so that both ends notice when the other is gone.
  virtual void begin_stream(std::string type, std::string heartbeat = {},
                            double heartbeat_seconds = 0) = 0;
  virtual void send(std::string part) = 0;
  // whole: false if the answer is incomplete, or none was begun and none will come, which the
  // client then notices by a broken connection.
  virtual void end_stream(bool whole) = 0;

  // True while so much is unsent that more would only wait in memory.
  virtual bool is_full() const = 0;
  virtual bool is_gone() const = 0;
  // Sets a function that is called on the connections' thread, without locks, when is_full()
  // becomes false or is_gone() true; null: none. A call that has begun may end after its
  // replacement.
  virtual void on_change(std::function<void()> changed) = 0;

 protected:
  RequestHead head_;
  std::string body_;
};

// The decision about a request, made from its head.
struct Admission {
  // If set, it is sent at once: the body is not read and, if there is one, the connection is
  // closed.
  std::optional<Answer> answer;
  // Otherwise this is called on the connections' thread when the body was received. It must not
  // wait; the exchange may be kept and answered later.
  std::function<void(std::shared_ptr<Exchange>)> handle;
  int64_t most_body_bytes = 0;  // a larger one is answered 413
  Headers headers = {};         // of every answer to this request
};

// The behavior of a server. All functions are called on the connections' thread and must not wait.
// What they and Admission::handle throw is answered 500, or ends that one connection.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual Admission admit(const RequestHead& head) = 0;
  // The answer to a request that this layer refuses: 400, 408, 413, 417, 431, 500, 503.
  virtual Answer refusal(int status, const std::string& message) = 0;
  // Called when an answer has ended. bytes: of its body. status 0: the client disconnected before
  // there was one.
  virtual void done(const RequestHead& head, int status, int64_t bytes, double seconds) = 0;
};

// What keeps a server from listening there, after it was tried: a host without an address, one of
// another machine, or a port that is taken. port 0: a free one was asked for.
std::string why_not_listening(const std::string& host, int port);

class Server {
 public:
  // `handler` outlives the server.
  Server(Handler& handler, const Limits& limits);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens on a port, 0: a free one; from here on clients can connect. Returns the port, or 0
  // where the host has no address on this machine or the port is taken.
  int bind(const std::string& host, int port);
  // Serves on this thread until stop() was called and everything that was then being answered has
  // its answer.
  void run();
  // Accepts no more connections and requests. From any thread, at any time.
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

}  // namespace temper::http
