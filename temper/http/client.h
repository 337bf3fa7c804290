// HTTP to one server. The files of this folder are the only ones that know the HTTP library.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "temper/base/error.h"

namespace temper::http {

// "http://host:port" and what stands before the paths: of "http://h:1/a/v1/" that is "/a".
struct ServerUrl {
  std::string origin, prefix;
  std::string str() const { return origin + prefix; }
};
// With or without /v1. Throws ConfigError naming what was found.
ServerUrl parse_url(const std::string& text);

// A request that was not answered as it should be.
class Failure : public Error {
 public:
  Failure(const std::string& message, bool unreachable, int status = 0,
          std::optional<double> retry_after = {})
      : Error(message), unreachable(unreachable), status(status), retry_after(retry_after) {}
  // The server is there and takes no more requests now: 429 (too many requests), 503.
  bool busy() const { return status == 429 || status == 503; }

  bool unreachable;                   // no whole answer came: the server may be gone
  int status;                         // of the answer; 0: none
  std::optional<double> retry_after;  // seconds that the answer asks to wait (Retry-After)
};

// A connection that is kept between requests; one thread at a time, but for stop().
class Client {
 public:
  // api_key: sent as "Authorization: Bearer KEY" unless empty. timeout_seconds: of a whole answer.
  Client(const ServerUrl& url, const std::string& api_key, double timeout_seconds);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The body of the answer. `path` begins with "/". Throws Failure unless the status is 2xx.
  std::string get(const std::string& path);
  std::string post(const std::string& path, const std::string& json);
  // Bytes of any number, which are not copied.
  std::string post_bytes(const std::string& path, std::shared_ptr<const std::string> bytes);
  // Waits at a route whose answer does not end, until the server, its host or stop() ends it.
  // heard: called for each heartbeat, which is any bytes that the server sends.
  void follow_heartbeats(const std::string& path, const std::function<void()>& heard);
  // Ends what is going on, from any thread. What is asked after that fails.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper::http
