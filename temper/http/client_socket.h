// A client's connection to its server, by TCP or TLS.
#pragma once

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/error.hpp>
#include <cstddef>
#include <optional>
#include <string>

#include "temper/http/server_url.h"

namespace temper::http {

// Every wait runs the events of its operation on the caller's thread, up to a deadline; stop()
// closes the socket by an event. Not thread-safe, except stop(). `path` begins the messages of
// Failure, which is thrown unless an operation ends well in time, and closes the connection.
class ClientSocket {
 public:
  static constexpr double kLongestWait = 14 * 24 * 3600;  // seconds; stop() may end it
  static constexpr const char* kNotWhole =
      "the connection ended, or the time was over, before the answer was whole";

  // timeout_seconds: for connecting, and until the server takes some of what is written.
  ClientSocket(Origin origin, double timeout_seconds);

  // There is a connection, and nothing to read from it.
  bool is_usable();
  void connect(const std::string& path);
  void write(const std::string& path, const char* data, size_t size);
  // Returns the number of bytes; 0: the other end has closed the connection.
  size_t read_some(const std::string& path, boost::asio::mutable_buffer space, double seconds);
  void close();
  // Ends what is under way, from any thread. Later operations fail.
  void stop();

 private:
  // Runs an asynchronous operation, which begin(handler) starts, to its end. Returns the bytes that
  // it moved. Throws Failure "PATH: PROBLEM" unless it ends well in time.
  template <class Begin>
  size_t wait(double seconds, const std::string& path, const std::string& problem, Begin begin);
  void check_not_stopped(const std::string& path) const;

  const Origin origin_;
  const double timeout_;
  boost::asio::io_context io_{1};
  std::optional<boost::asio::ssl::context> context_;  // of https
  boost::asio::ip::tcp::socket socket_{io_};
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::atomic<bool> stopped_{false};
};

}  // namespace temper::http
