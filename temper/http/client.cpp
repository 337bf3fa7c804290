#include "temper/http/client.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/ascii.h"
#include "temper/base/clock.h"
#include "temper/base/json.h"
#include "temper/base/liveness.h"
#include "temper/http/appended_body.h"

namespace temper::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using AnswerParser = beast::http::response_parser<AppendedBody>;

constexpr double kConnectSeconds = 5;
constexpr double kHeartbeatPatience = 14 * 24 * 3600;  // seconds between bytes; stop() may end it
constexpr size_t kLongestQuote = 300;
// Bytes. A server that is not well sends answers without end, or heads, sizes of chunks and
// trailers.
constexpr size_t kLongestAnswer = size_t{512} << 20;
constexpr int64_t kMostOverhead = int64_t{1} << 20;  // of an answer beside its body
constexpr int64_t kOverheadOfByte = 16;              // and of each byte, which may be a chunk
constexpr size_t kReadOfAnswer = size_t{256} << 10;

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

// What an error's body says: {"error": {"message"}}, {"message"}, {"detail"}, or its beginning.
std::string message_of(const std::string& body) {
  Json json;
  try {
    json = parse_json(body, "the answer");
  } catch (const Error&) {
    return in_one_line(body.substr(0, kLongestQuote));
  }
  const Json* found = &json;
  if (json.is_object() && json.contains("error")) found = &json["error"];
  if (found->is_object())
    for (const char* key : {"message", "detail"})
      if (found->contains(key)) return dump_json((*found)[key]).substr(0, kLongestQuote);
  return dump_json(*found).substr(0, kLongestQuote);
}

// Retry-After is a number of seconds, or a date of HTTP.
std::optional<double> retry_after(const std::string& text) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size())
    return static_cast<double>(std::max<int64_t>(seconds, 0));
  std::tm date{};
  if (!::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date)) return {};
  return std::max(0.0, std::difftime(::timegm(&date), std::time(nullptr)));
}

// The parts of "http://host:port", "https://[::1]".
struct Origin {
  bool tls = false;
  std::string authority, host, port;
};

Origin parse_origin(const std::string& text) {
  const size_t begin = text.find("://") + 3;
  Origin origin{.tls = text.starts_with("https"), .authority = text.substr(begin)};
  const size_t bracket = origin.authority.rfind(']');
  const size_t colon = origin.authority.find(':', bracket == std::string::npos ? 0 : bracket);
  origin.host = origin.authority.substr(0, colon);
  if (origin.host.starts_with("[") && origin.host.ends_with("]"))
    origin.host = origin.host.substr(1, origin.host.size() - 2);
  origin.port = colon != std::string::npos ? origin.authority.substr(colon + 1)
                : origin.tls               ? "443"
                                           : "80";
  return origin;
}

bool is_one_word(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 127; });
}

}  // namespace

std::string api_key_in(const std::optional<std::string>& variable, const std::string& key) {
  if (!variable) return {};
  check<ConfigError>(!variable->empty(), key,
                     ": found an empty name, expected that of an environment variable");
  const char* const found = std::getenv(variable->c_str());
  check<ConfigError>(found != nullptr, key, ": the environment has no ", *variable,
                     "; it must hold the API key");
  check<ConfigError>(*found != '\0', key, ": the environment variable ", *variable,
                     " is set, but empty; it must hold the API key");
  return found;
}

ServerUrl parse_url(const std::string& text, const std::string& key) {
  const size_t scheme = text.find("://");
  const std::string name = text.substr(0, scheme);
  check<ConfigError>(scheme != std::string::npos && (name == "http" || name == "https") &&
                         scheme + 3 < text.size() && text[scheme + 3] != '/' && is_one_word(text),
                     key, ": found ", text, ", expected http://HOST:PORT or https://HOST");
  const size_t path = text.find('/', scheme + 3);
  ServerUrl url{text.substr(0, path), path == std::string::npos ? "" : text.substr(path)};
  const std::string port = parse_origin(url.origin).port;
  check<ConfigError>(!port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string::npos &&
                         std::stoi(port) >= 1 && std::stoi(port) <= 65535,
                     key, ": found the port `", port, "` in ", text, ", expected 1 to 65535");
  const auto cut_slashes = [&] {
    while (url.prefix.ends_with("/")) url.prefix.pop_back();
  };
  cut_slashes();
  if (url.prefix.ends_with("/v1")) url.prefix.resize(url.prefix.size() - 3);
  cut_slashes();
  return url;
}

// Every wait runs the events of its operation on the caller's thread, up to a deadline; stop()
// closes the socket by an event.
struct Client::Impl {
  Impl(const ServerUrl& url, const std::string& api_key, double timeout_seconds)
      : origin(parse_origin(url.origin)), prefix(url.prefix), timeout(timeout_seconds) {
    check<ConfigError>(is_one_word(api_key), "the API key of ", url.origin,
                       ": found a space or a control character, expected one word");
    headers = "Host: " + origin.authority + "\r\nAccept: */*\r\nUser-Agent: temper\r\n";
    if (!api_key.empty()) headers += "Authorization: Bearer " + api_key + "\r\n";
    if (!origin.tls) return;
    context.emplace(asio::ssl::context::tls_client);
    context->set_default_verify_paths();
  }

  // Runs an asynchronous operation, which begin(handler) starts, to its end. Returns the bytes that
  // it moved. Throws Failure "PATH: PROBLEM" unless it ends well in time.
  template <class Begin>
  size_t wait(double seconds, const std::string& path, const std::string& problem, Begin begin) {
    using std::chrono::duration, std::chrono::duration_cast, std::chrono::milliseconds;
    std::optional<beast::error_code> result;
    size_t moved = 0;
    const auto done = [&](const beast::error_code& error, size_t bytes) {
      result = error;
      moved = bytes;
    };
    check_not_stopped(path);  // stop() ends only what has begun
    io.restart();
    begin(done);
    io.run_for(duration_cast<milliseconds>(
        duration<double>(std::clamp(seconds, 0.0, kHeartbeatPatience))));
    const bool in_time = result.has_value();
    if (!in_time) {
      close();
      io.restart();
      io.run();  // the operation, which refers to this call, ends
    }
    if (in_time && !*result) return moved;
    close();
    check_not_stopped(path);
    throw Failure(temper::str(path, ": ", problem), true);
  }

  bool is_usable() {
    if (!socket.is_open()) return false;
    char byte;
    // An idle connection has nothing to read: neither its end nor a late answer.
    return ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  void connect(const std::string& path) {
    close();
    tls.reset();
    const std::string no_connection = "cannot connect; is the server running there?";
    const double end = steady_seconds() + std::min(kConnectSeconds, timeout);
    const auto left = [&] { return end - steady_seconds(); };
    Tcp::resolver resolver(io);
    Tcp::resolver::results_type addresses;
    wait(left(), path, no_connection, [&](auto done) {
      resolver.async_resolve(origin.host, origin.port, [&, done](auto error, auto found) {
        addresses = found;
        done(error, 0);
      });
    });
    wait(left(), path, no_connection, [&](auto done) {
      asio::async_connect(socket, addresses,
                          [done](auto error, const Tcp::endpoint&) { done(error, 0); });
    });
    beast::error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    notice_silence(socket.native_handle());
    if (!context) return;
    tls.emplace(socket, *context);
    beast::error_code not_address;
    asio::ip::make_address(origin.host, not_address);
    if (not_address) ::SSL_set_tlsext_host_name(tls->native_handle(), origin.host.c_str());
    tls->set_verify_mode(asio::ssl::verify_peer);
    tls->set_verify_callback(asio::ssl::host_name_verification(origin.host));
    wait(left(), path, "no TLS connection; is the server's certificate valid here?",
         [&](auto done) {
           tls->async_handshake(asio::ssl::stream_base::client,
                                [done](auto error) { done(error, 0); });
         });
  }

  // What is being read or written ends with an error, and needs `tls` until then.
  void close() {
    beast::error_code ignored;
    socket.close(ignored);
  }

  void write(const std::string& path, const char* data, size_t size) {
    while (size > 0) {
      const asio::const_buffer rest(data, size);
      const size_t n = wait(timeout, path, kNotWhole, [&](auto done) {
        tls ? tls->async_write_some(rest, done) : socket.async_write_some(rest, done);
      });
      data += n;
      size -= n;
    }
  }

  // Sends a request and reads its answer. `between`: seconds without a byte; `most`: seconds for
  // the whole. part: is called with each part of the body instead of keeping it, unless null.
  std::string send(const char* method, const std::string& path, std::string_view type,
                   std::string_view body, double between, double most,
                   const std::function<void()>& part = {}, const std::string& fields = {}) {
    const double end = steady_seconds() + most;
    std::string head = temper::str(method, " ", prefix, path, " HTTP/1.1\r\n", headers, fields);
    if (!type.empty())
      head += temper::str("Content-Type: ", type, "\r\nContent-Length: ", body.size(), "\r\n");
    head += "\r\n";
    if (!is_usable()) connect(path);
    write(path, head.data(), head.size());
    write(path, body.data(), body.size());
    return receive(path, between, end, part);
  }

  std::string receive(const std::string& path, double between, double end,
                      const std::function<void()>& part) {
    std::optional<AnswerParser> parser;
    beast::flat_buffer unparsed(static_cast<size_t>(kMostOverhead));
    int64_t read = 0, of_body = 0;
    const auto fail = [&](const auto&... why) {
      close();
      throw Failure(temper::str(path, ": ", why...), true);
    };
    const auto too_long = [&] {
      fail("the answer's head or chunks are too long: expected at most ", kMostOverhead,
           " bytes beside the body; is this a rollout server?");
    };
    for (bool closed = false; !parser || !parser->is_done();) {
      if (!parser) {
        parser.emplace();
        parser->header_limit(static_cast<uint32_t>(kMostOverhead));
        parser->body_limit(saved ? std::numeric_limits<uint64_t>::max() : kLongestAnswer);
        parser->skip(saved && !saved->part);  // HEAD
        parser->eager(true);
      } else if (closed) {
        fail(kNotWhole);
      }
      beast::error_code error = beast::http::error::need_more;
      if (unparsed.size() > 0) unparsed.consume(parser->put(unparsed.data(), error));
      std::string& body = parser->get().body();
      if (saved && parser->is_header_done()) {
        of_body += static_cast<int64_t>(body.size());
        save(parser->get());
      }
      if (part && !body.empty() && parser->get().result_int() / 100 == 2) {
        of_body += static_cast<int64_t>(body.size());
        body.clear();
        part();
      }
      if (error == beast::http::error::body_limit)
        fail("the answer has more than ", kLongestAnswer, " bytes; is this a rollout server?");
      if (error == beast::http::error::header_limit) too_long();
      if (error && error != beast::http::error::need_more)
        fail("the answer is not HTTP: ", error.message());
      if (read >
          kMostOverhead + (1 + kOverheadOfByte) * (of_body + static_cast<int64_t>(body.size())))
        too_long();
      if (parser->is_done()) {
        if (parser->get().result_int() / 100 != 1) break;
        parser.reset();  // "100 Continue": the answer follows
        continue;
      }
      const size_t space = std::min(kReadOfAnswer, unparsed.max_size() - unparsed.size());
      if (space == 0) too_long();
      if (steady_seconds() >= end) fail("the answer took too long");
      const size_t n =
          read_some(path, unparsed.prepare(space), std::min(between, end - steady_seconds()));
      unparsed.commit(n);
      read += static_cast<int64_t>(n);
      if (n > 0) continue;
      closed = true;
      if (!parser->got_some()) fail(kNotWhole);
      parser->put_eof(error);
      if (error) fail(kNotWhole);
    }
    auto& answer = parser->get();
    if (!answer.keep_alive() || unparsed.size() > 0) close();
    if (answer.result_int() / 100 == 2) return std::move(answer.body());
    if (saved && answer.result_int() / 100 == 3) return {};
    throw Failure(
        temper::str(path, ": status ", answer.result_int(), " ", message_of(answer.body())), false,
        static_cast<int>(answer.result_int()), retry_after(std::string(answer["Retry-After"])));
  }

  // Hands what has come of an answer's body to whom download() serves.
  template <class Answer>
  void save(Answer& answer) {
    if (saved_head.status != static_cast<int>(answer.result_int())) {
      saved_head = {.status = static_cast<int>(answer.result_int()), .fields = {}};
      for (const auto& field : answer) {
        saved_head.fields[ascii_lower(std::string(field.name_string()))] =
            std::string(field.value());
      }
      if (saved_head.status / 100 == 2 && saved->begun) saved->begun(saved_head);
    }
    if (saved_head.status / 100 != 2 || !saved->part || answer.body().empty()) return;
    saved->part(answer.body());
    answer.body().clear();
  }

  // 0: the other end has closed the connection.
  size_t read_some(const std::string& path, asio::mutable_buffer space, double seconds) {
    return wait(seconds, path, kNotWhole, [&](auto done) {
      const auto ended = [done](const beast::error_code& error, size_t bytes) {
        const bool end = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
        done(end ? beast::error_code() : error, bytes);
      };
      tls ? tls->async_read_some(space, ended) : socket.async_read_some(space, ended);
    });
  }

  void check_not_stopped(const std::string& path) const {
    if (stopped) throw Failure(path + ": the connection was ended here", true);
  }

  static constexpr const char* kNotWhole =
      "the connection ended, or the time was over, before the answer was whole";
  Origin origin;
  std::string prefix, headers;
  double timeout;
  asio::io_context io{1};
  std::optional<asio::ssl::context> context;  // of https
  Tcp::socket socket{io};
  std::optional<asio::ssl::stream<Tcp::socket&>> tls;
  std::atomic<bool> stopped{false};
  const Download* saved = nullptr;  // during download()
  AnswerHead saved_head;
};

std::string AnswerHead::field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

Client::Client(const ServerUrl& url, const std::string& api_key, double timeout_seconds)
    : impl_(std::make_unique<Impl>(url, api_key, timeout_seconds)) {}
Client::~Client() = default;

std::string Client::get(const std::string& path) {
  return impl_->send("GET", path, "", "", impl_->timeout, impl_->timeout);
}

std::string Client::post(const std::string& path, const std::string& json) {
  return impl_->send("POST", path, "application/json", json, impl_->timeout, impl_->timeout);
}

std::string Client::post_bytes(const std::string& path, std::shared_ptr<const std::string> bytes) {
  // Sending them may take any time.
  return impl_->send("POST", path, "application/octet-stream", *bytes, impl_->timeout, INFINITY);
}

AnswerHead Client::download(const std::string& path, const std::vector<std::string>& fields,
                            const Download& to) {
  std::string more;
  for (const std::string& field : fields) more += field + "\r\n";
  impl_->saved = &to;
  impl_->saved_head = {};
  const auto end = [&] {
    impl_->saved = nullptr;
    return std::exchange(impl_->saved_head, {});
  };
  try {
    impl_->send(to.part ? "GET" : "HEAD", path, "", "", impl_->timeout, INFINITY, {}, more);
  } catch (...) {
    impl_->close();  // what is left of the answer must not be taken for the next one
    end();
    throw;
  }
  return end();
}

void Client::follow_heartbeats(const std::string& path, const std::function<void()>& heard) {
  try {
    impl_->send("GET", path, "", "", kHeartbeatPatience, INFINITY, heard);
  } catch (const Failure&) {
    // The server, its host or stop() has ended it.
  }
}

void Client::stop() {
  impl_->stopped = true;
  asio::post(impl_->io, [impl = impl_.get()] { impl->close(); });
}

}  // namespace temper::http
