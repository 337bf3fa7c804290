#include "temper/http/client.h"

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/ascii.h"
#include "temper/base/clock.h"
#include "temper/base/json.h"
#include "temper/http/appended_body.h"
#include "temper/http/client_socket.h"

namespace temper::http {
namespace {

namespace beast = boost::beast;
using AnswerParser = beast::http::response_parser<AppendedBody>;

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

// Of all requests. Throws ConfigError.
std::string headers_of(const ServerUrl& url, const std::string& api_key) {
  check<ConfigError>(is_one_word(api_key), "the API key of ", url.origin,
                     ": found a space or a control character, expected one word");
  std::string headers =
      "Host: " + parse_origin(url.origin).authority + "\r\nAccept: */*\r\nUser-Agent: temper\r\n";
  if (!api_key.empty()) headers += "Authorization: Bearer " + api_key + "\r\n";
  return headers;
}

}  // namespace

struct Client::Impl {
  Impl(const ServerUrl& url, const std::string& api_key, double timeout_seconds)
      : prefix(url.prefix),
        headers(headers_of(url, api_key)),
        timeout(timeout_seconds),
        socket(parse_origin(url.origin), timeout_seconds) {}

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
    if (!socket.is_usable()) socket.connect(path);
    socket.write(path, head.data(), head.size());
    socket.write(path, body.data(), body.size());
    return receive(path, between, end, part);
  }

  std::string receive(const std::string& path, double between, double end,
                      const std::function<void()>& part) {
    std::optional<AnswerParser> parser;
    beast::flat_buffer unparsed(static_cast<size_t>(kMostOverhead));
    int64_t read = 0, of_body = 0;
    for (bool closed = false; !parser || !parser->is_done();) {
      if (!parser)
        begin(parser);
      else if (closed)
        fail(path, ClientSocket::kNotWhole);
      beast::error_code error = beast::http::error::need_more;
      if (unparsed.size() > 0) unparsed.consume(parser->put(unparsed.data(), error));
      of_body += hand_on(*parser, part);
      check_parsed(path, error, read, of_body + static_cast<int64_t>(parser->get().body().size()));
      if (parser->is_done()) {
        if (parser->get().result_int() / 100 != 1) break;
        parser.reset();  // "100 Continue": the answer follows
        continue;
      }
      const size_t space = std::min(kReadOfAnswer, unparsed.max_size() - unparsed.size());
      if (space == 0) fail_for_length(path);
      if (steady_seconds() >= end) fail(path, "the answer took too long");
      const size_t n = socket.read_some(path, unparsed.prepare(space),
                                        std::min(between, end - steady_seconds()));
      unparsed.commit(n);
      read += static_cast<int64_t>(n);
      if (n > 0) continue;
      closed = true;
      if (!parser->got_some()) fail(path, ClientSocket::kNotWhole);
      parser->put_eof(error);
      if (error) fail(path, ClientSocket::kNotWhole);
    }
    auto& answer = parser->get();
    if (!answer.keep_alive() || unparsed.size() > 0) socket.close();
    if (answer.result_int() / 100 == 2) return std::move(answer.body());
    if (saved && answer.result_int() / 100 == 3) return {};
    throw Failure(
        temper::str(path, ": status ", answer.result_int(), " ", message_of(answer.body())), false,
        static_cast<int>(answer.result_int()), retry_after(std::string(answer["Retry-After"])));
  }

  void begin(std::optional<AnswerParser>& parser) const {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(kMostOverhead));
    parser->body_limit(saved ? std::numeric_limits<uint64_t>::max() : kLongestAnswer);
    parser->skip(saved && !saved->part);  // HEAD
    parser->eager(true);
  }

  // Hands what has come of an answer's body to whom it is for, if it is not kept. Returns its
  // bytes.
  int64_t hand_on(AnswerParser& parser, const std::function<void()>& part) {
    std::string& body = parser.get().body();
    int64_t size = 0;
    if (saved && parser.is_header_done()) {
      size += static_cast<int64_t>(body.size());
      save(parser.get());
    }
    if (part && !body.empty() && parser.get().result_int() / 100 == 2) {
      size += static_cast<int64_t>(body.size());
      body.clear();
      part();
    }
    return size;
  }

  // read: bytes of the answer so far; of_body: those of its body.
  void check_parsed(const std::string& path, const beast::error_code& error, int64_t read,
                    int64_t of_body) {
    if (error == beast::http::error::body_limit)
      fail(path, "the answer has more than ", kLongestAnswer, " bytes; is this a rollout server?");
    if (error == beast::http::error::header_limit) fail_for_length(path);
    if (error && error != beast::http::error::need_more)
      fail(path, "the answer is not HTTP: ", error.message());
    if (read > kMostOverhead + (1 + kOverheadOfByte) * of_body) fail_for_length(path);
  }

  [[noreturn]] void fail_for_length(const std::string& path) {
    fail(path, "the answer's head or chunks are too long: expected at most ", kMostOverhead,
         " bytes beside the body; is this a rollout server?");
  }

  template <class... Why>
  [[noreturn]] void fail(const std::string& path, const Why&... why) {
    socket.close();
    throw Failure(temper::str(path, ": ", why...), true);
  }

  // The same to whom download() serves.
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

  std::string prefix, headers;
  double timeout;
  ClientSocket socket;
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
    impl_->socket.close();  // what is left of the answer must not be taken for the next one
    end();
    throw;
  }
  return end();
}

void Client::follow_heartbeats(const std::string& path, const std::function<void()>& heard) {
  try {
    impl_->send("GET", path, "", "", ClientSocket::kLongestWait, INFINITY, heard);
  } catch (const Failure&) {
    // The server, its host or stop() has ended it.
  }
}

void Client::stop() { impl_->socket.stop(); }

}  // namespace temper::http
