#include "temper/http/client.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "temper/base/clock.h"
#include "temper/base/json.h"
#include "temper/base/liveness.h"
#include "temper/http/bytes_read.h"

namespace temper::http {
namespace {

constexpr double kConnectSeconds = 5;
constexpr size_t kLongestQuote = 300;
constexpr size_t kLongestAnswer = size_t{512}
                                  << 20;  // bytes; of a server that is not well it has no end
constexpr int64_t kMostOverhead = int64_t{1} << 20;  // bytes of an answer beside its body
constexpr int64_t kOverheadOfByte = 16;              // and of each byte, which may be a chunk
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);
constexpr time_t kHeartbeatPatience =
    14 * 24 * 3600;  // seconds between bytes; stop() may end it before

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

std::string reason(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
      return "cannot connect; is the server running there?";
    case httplib::Error::Read:
      return "the connection ended, or the time was over, before the answer was whole";
    case httplib::Error::Canceled:
      return "the answer took too long";
    default:
      return httplib::to_string(error);
  }
}

// Retry-After is a number of seconds, or a date of HTTP.
std::optional<double> retry_after(const httplib::Response& answer) {
  const std::string text = answer.get_header_value("Retry-After");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size())
    return static_cast<double>(std::max<int64_t>(seconds, 0));
  std::tm date{};
  if (!::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date)) return {};
  return std::max(0.0, std::difftime(::timegm(&date), std::time(nullptr)));
}

// The client's newest socket. Another connection may get the number of one that was closed.
struct Connection {
  std::atomic<int> socket{-1};
  std::atomic<int64_t> opened{0};  // connections so far
};

// The library reads heads, sizes of chunks and trailers of any length. This ends a connection whose
// server sends them without end, by counting the bytes that were read of it.
class OverheadWatch {
 public:
  OverheadWatch(httplib::Client& client, const Connection& connection)
      : client_(client),
        connection_(connection),
        first_(connection.opened),
        before_(bytes_read(connection.socket)) {
    try {
      thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error&) {
      // Without a thread nobody watches, as with most servers nobody has to.
    }
  }
  ~OverheadWatch() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  OverheadWatch(const OverheadWatch&) = delete;
  OverheadWatch& operator=(const OverheadWatch&) = delete;

  void add_body(size_t bytes) { body_ += static_cast<int64_t>(bytes); }
  bool ended() const { return ended_; }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kBetweenLooks, [this] { return done_; })) {
      const int64_t read =
          bytes_read(connection_.socket) - (connection_.opened == first_ ? before_ : 0);
      if (read <= kMostOverhead + (1 + kOverheadOfByte) * body_) continue;
      ended_ = true;
      lock.unlock();
      client_.stop();
      return;
    }
  }

  httplib::Client& client_;
  const Connection& connection_;
  const int64_t first_;   // the connection at the begin, as `opened` counts them
  const int64_t before_;  // bytes of its earlier answers
  std::atomic<int64_t> body_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

std::string body_of(const httplib::Result& result, std::string body, const std::string& path) {
  if (body.size() > kLongestAnswer)
    throw Failure(temper::str(path, ": the answer has more than ", kLongestAnswer,
                              " bytes; is this a "
                              "rollout server?"),
                  true);
  if (!result) throw Failure(temper::str(path, ": ", reason(result.error())), true);
  if (result->status / 100 == 2) return body;
  throw Failure(temper::str(path, ": status ", result->status, " ", message_of(body)), false,
                result->status, retry_after(result.value()));
}

}  // namespace

ServerUrl parse_url(const std::string& text) {
  const size_t scheme = text.find("://");
  const std::string name = text.substr(0, scheme);
  check<ConfigError>(scheme != std::string::npos && (name == "http" || name == "https") &&
                         scheme + 3 < text.size() && text[scheme + 3] != '/',
                     "rollout.server.urls: found ", text, ", expected http://HOST:PORT");
  const size_t path = text.find('/', scheme + 3);
  const std::string host = text.substr(scheme + 3, path - scheme - 3);
  const size_t colon = host.ends_with("]") ? std::string::npos : host.rfind(':');
  if (colon != std::string::npos) {
    const std::string port = host.substr(colon + 1);
    check<ConfigError>(!port.empty() && port.size() <= 5 &&
                           port.find_first_not_of("0123456789") == std::string::npos &&
                           std::stoi(port) >= 1 && std::stoi(port) <= 65535,
                       "rollout.server.urls: found the port `", port, "` in ", text,
                       ", expected 1 to 65535");
  }
  ServerUrl url{text.substr(0, path), path == std::string::npos ? "" : text.substr(path)};
  const auto cut_slashes = [&] {
    while (url.prefix.ends_with("/")) url.prefix.pop_back();
  };
  cut_slashes();
  if (url.prefix.ends_with("/v1")) url.prefix.resize(url.prefix.size() - 3);
  cut_slashes();
  return url;
}

struct Client::Impl {
  Impl(const ServerUrl& url, const std::string& api_key, double timeout_seconds)
      : client(url.origin), prefix(url.prefix), timeout(timeout_seconds) {
    using std::chrono::duration_cast, std::chrono::microseconds;
    const auto time = [](double seconds) {
      return duration_cast<microseconds>(std::chrono::duration<double>(seconds));
    };
    client.set_connection_timeout(time(std::min(kConnectSeconds, timeout)));
    client.set_read_timeout(time(timeout));
    client.set_write_timeout(time(timeout));
    client.set_keep_alive(true);
    client.set_tcp_nodelay(true);
    client.set_socket_options([this](socket_t fd) {
      notice_silence(fd);
      connection.socket = fd;
      ++connection.opened;
    });
    if (!api_key.empty()) client.set_bearer_token_auth(api_key);
  }

  std::string send(const char* method, const std::string& path, const std::string& body) {
    httplib::Request request;
    request.method = method;
    request.path = prefix + path;
    request.body = body;
    if (!body.empty()) request.set_header("Content-Type", "application/json");
    return send(request, path, timeout);
  }

  std::string send(httplib::Request& request, const std::string& path, double seconds) {
    check_not_stopped(path);
    // The library limits the time between bytes, not their number.
    const double end = steady_seconds() + seconds;
    std::string body;
    OverheadWatch watch(client, connection);
    request.content_receiver = [&](const char* part, size_t size, uint64_t, uint64_t) {
      watch.add_body(size);
      body.append(part, size);
      return body.size() <= kLongestAnswer && steady_seconds() < end;
    };
    httplib::Result result = client.send(request);
    if (!result && watch.ended())
      throw Failure(temper::str(path,
                                ": the answer's head or chunks are too long: expected at "
                                "most ",
                                kMostOverhead,
                                " bytes beside the body; is this a "
                                "rollout server?"),
                    true);
    return body_of(result, std::move(body), path);
  }

  void check_not_stopped(const std::string& path) const {
    if (stopped) throw Failure(path + ": the connection was ended here", true);
  }

  Connection connection;
  httplib::Client client;
  std::string prefix;
  double timeout;
  std::atomic<bool> stopped{false};
};

Client::Client(const ServerUrl& url, const std::string& api_key, double timeout_seconds)
    : impl_(std::make_unique<Impl>(url, api_key, timeout_seconds)) {}
Client::~Client() = default;

std::string Client::get(const std::string& path) { return impl_->send("GET", path, {}); }

std::string Client::post(const std::string& path, const std::string& json) {
  return impl_->send("POST", path, json);
}

std::string Client::post_bytes(const std::string& path, std::shared_ptr<const std::string> bytes) {
  httplib::Request request;
  request.method = "POST";
  request.path = impl_->prefix + path;
  request.set_header("Content-Type", "application/octet-stream");
  request.content_length_ = bytes->size();
  request.content_provider_ = [&](size_t offset, size_t length, httplib::DataSink& sink) {
    return !impl_->stopped && sink.write(bytes->data() + offset, length);
  };
  // Sending them may take any time.
  return impl_->send(request, path, INFINITY);
}

void Client::follow_heartbeats(const std::string& path, const std::function<void()>& heard) {
  if (impl_->stopped) return;
  impl_->client.set_read_timeout(kHeartbeatPatience);
  OverheadWatch watch(impl_->client, impl_->connection);
  impl_->client.Get(impl_->prefix + path, [&](const char*, size_t size) {
    watch.add_body(size);
    heard();
    return true;
  });
}

void Client::stop() {
  impl_->stopped = true;
  impl_->client.stop();
}

}  // namespace temper::http
