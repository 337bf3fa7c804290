// An HTTP client of one server. Only the sources in temper/http include Boost.Beast.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/error.h"
#include "temper/http/server_url.h"

namespace temper::http {

// A request that failed: no complete answer, or a status other than 2xx.
class Failure : public Error {
 public:
  Failure(const std::string& message, bool unreachable, int status = 0,
          std::optional<double> retry_after = {})
      : Error(message), unreachable(unreachable), status(status), retry_after(retry_after) {}
  // The server is up, but accepts no more requests now: 429 (too many requests) or 503.
  bool busy() const { return status == 429 || status == 503; }

  bool unreachable;                   // no complete answer came: the server may be down
  int status;                         // of the answer; 0: none
  std::optional<double> retry_after;  // Retry-After, in seconds
};

// An answer's status and fields; their names are in lower case.
struct AnswerHead {
  int status = 0;
  std::map<std::string, std::string> fields;
  // Empty: there is no such field.
  std::string field(const std::string& name) const;
};

// Keeps one connection alive between requests. Not thread-safe, except stop().
class Client {
 public:
  // api_key: sent as "Authorization: Bearer KEY" unless empty. timeout_seconds: for a complete
  // answer.
  Client(const ServerUrl& url, const std::string& api_key, double timeout_seconds);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Return the body of the answer. `path` begins with "/". Throw Failure unless the status is 2xx.
  std::string get(const std::string& path);
  std::string post(const std::string& path, const std::string& json);
  // Posts binary data of any size, without copying it.
  std::string post_bytes(const std::string& path, std::shared_ptr<const std::string> bytes);
  // For files: a GET, or a HEAD where there is no `part`, with more fields ("Range: bytes=5-").
  // `begun` is called with the head of a 2xx answer and `part` with its bytes as they come, for as
  // long as it takes, but for a pause of timeout_seconds. Also gives heads of redirections (3xx).
  struct Download {
    std::function<void(const AnswerHead&)> begun;
    std::function<void(std::string_view)> part;
  };
  AnswerHead download(const std::string& path, const std::vector<std::string>& fields,
                      const Download& to);
  // Reads a route whose answer never ends, until the server closes it, its host is lost or stop()
  // is called. `heard` is called for each heartbeat, that is whenever bytes arrive.
  void follow_heartbeats(const std::string& path, const std::function<void()>& heard);
  // Aborts the request in progress, from any thread. Later requests fail.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper::http
