#include "temper/http/text.h"

#include <cstdio>
#include <ctime>

#include "temper/base/error.h"

namespace temper::http {
namespace {

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "-";
  }
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  constexpr const char *kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"},
                       *kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  char rest[64];
  std::snprintf(rest, sizeof rest, ", %02d %s %d %02d:%02d:%02d GMT", utc.tm_mday,
                kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return std::string(kDays[utc.tm_wday]) + rest;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Decodes %41 to A. nullopt: a malformed escape.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace

std::string response_head(int status, std::string_view type, const Headers& headers, BodyEnd end,
                          size_t length, bool keep_alive) {
  std::string out =
      temper::str("HTTP/1.1 ", status, " ", reason_of(status), "\r\nDate: ", http_date(), "\r\n");
  if (!type.empty()) out += temper::str("Content-Type: ", type, "\r\n");
  for (const auto& [name, value] : headers) out += temper::str(name, ": ", value, "\r\n");
  if (end == BodyEnd::kLength && status != 204)
    out += temper::str("Content-Length: ", length, "\r\n");
  if (end == BodyEnd::kChunks) out += "Transfer-Encoding: chunked\r\n";
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

std::string chunk_of(std::string_view data) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  std::string out = size;
  out.reserve(out.size() + data.size() + 2);
  return out.append(data).append("\r\n");
}

std::optional<Target> parse_target(std::string_view target) {
  if (target.starts_with("http://")) {
    const size_t path = target.find('/', 7);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (!target.starts_with('/') && target != "*") return std::nullopt;
  const size_t question = target.find('?');
  std::optional<std::string> path = percent_decoded(target.substr(0, question));
  if (!path) return std::nullopt;
  return Target{std::move(*path),
                question == std::string_view::npos ? "" : std::string(target.substr(question + 1))};
}

std::string for_log(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string out;
  for (const char c : text.substr(0, kLongest)) out += c > ' ' && c < 0x7f && c != '"' ? c : '?';
  return text.size() > kLongest ? out + "..." : out;
}

}  // namespace temper::http
