#include "temper/http/client_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/liveness.h"
#include "temper/http/client.h"

namespace temper::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;

constexpr double kConnectSeconds = 5;

}  // namespace

ClientSocket::ClientSocket(Origin origin, double timeout_seconds)
    : origin_(std::move(origin)), timeout_(timeout_seconds) {
  if (!origin_.tls) return;
  context_.emplace(asio::ssl::context::tls_client);
  context_->set_default_verify_paths();
}

template <class Begin>
size_t ClientSocket::wait(double seconds, const std::string& path, const std::string& problem,
                          Begin begin) {
  using std::chrono::duration, std::chrono::duration_cast, std::chrono::milliseconds;
  std::optional<beast::error_code> result;
  size_t moved = 0;
  const auto done = [&](const beast::error_code& error, size_t bytes) {
    result = error;
    moved = bytes;
  };
  check_not_stopped(path);  // stop() ends only what has begun
  io_.restart();
  begin(done);
  io_.run_for(
      duration_cast<milliseconds>(duration<double>(std::clamp(seconds, 0.0, kLongestWait))));
  const bool in_time = result.has_value();
  if (!in_time) {
    close();
    io_.restart();
    io_.run();  // the operation, which refers to this call, ends
  }
  if (in_time && !*result) return moved;
  close();
  check_not_stopped(path);
  throw Failure(temper::str(path, ": ", problem), true);
}

bool ClientSocket::is_usable() {
  if (!socket_.is_open()) return false;
  char byte;
  // An idle connection has nothing to read: neither its end nor a late answer.
  return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

void ClientSocket::connect(const std::string& path) {
  close();
  tls_.reset();
  const std::string no_connection = "cannot connect; is the server running there?";
  const double end = steady_seconds() + std::min(kConnectSeconds, timeout_);
  const auto left = [&] { return end - steady_seconds(); };
  Tcp::resolver resolver(io_);
  Tcp::resolver::results_type addresses;
  wait(left(), path, no_connection, [&](auto done) {
    resolver.async_resolve(origin_.host, origin_.port, [&, done](auto error, auto found) {
      addresses = found;
      done(error, 0);
    });
  });
  wait(left(), path, no_connection, [&](auto done) {
    asio::async_connect(socket_, addresses,
                        [done](auto error, const Tcp::endpoint&) { done(error, 0); });
  });
  beast::error_code ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);
  notice_silence(socket_.native_handle());
  if (!context_) return;
  tls_.emplace(socket_, *context_);
  beast::error_code not_address;
  asio::ip::make_address(origin_.host, not_address);
  if (not_address) ::SSL_set_tlsext_host_name(tls_->native_handle(), origin_.host.c_str());
  tls_->set_verify_mode(asio::ssl::verify_peer);
  tls_->set_verify_callback(asio::ssl::host_name_verification(origin_.host));
  wait(left(), path, "no TLS connection; is the server's certificate valid here?", [&](auto done) {
    tls_->async_handshake(asio::ssl::stream_base::client, [done](auto error) { done(error, 0); });
  });
}

// What is being read or written ends with an error, and needs `tls_` until then.
void ClientSocket::close() {
  beast::error_code ignored;
  socket_.close(ignored);
}

void ClientSocket::write(const std::string& path, const char* data, size_t size) {
  while (size > 0) {
    const asio::const_buffer rest(data, size);
    const size_t n = wait(timeout_, path, kNotWhole, [&](auto done) {
      tls_ ? tls_->async_write_some(rest, done) : socket_.async_write_some(rest, done);
    });
    data += n;
    size -= n;
  }
}

size_t ClientSocket::read_some(const std::string& path, asio::mutable_buffer space,
                               double seconds) {
  return wait(seconds, path, kNotWhole, [&](auto done) {
    const auto ended = [done](const beast::error_code& error, size_t bytes) {
      const bool end = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
      done(end ? beast::error_code() : error, bytes);
    };
    tls_ ? tls_->async_read_some(space, ended) : socket_.async_read_some(space, ended);
  });
}

void ClientSocket::check_not_stopped(const std::string& path) const {
  if (stopped_) throw Failure(path + ": the connection was ended here", true);
}

void ClientSocket::stop() {
  stopped_ = true;
  asio::post(io_, [this] { close(); });
}

}  // namespace temper::http
