#include "temper/http/request_head.h"

#include <optional>
#include <string_view>
#include <utility>

#include "temper/base/ascii.h"
#include "temper/http/text.h"

namespace temper::http {
namespace {

namespace http = boost::beast::http;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The problem of a head that Beast's parser accepts but that parsers of proxies read in different
// ways (request smuggling); empty: none.
std::string malformed(const RequestParser& parser) {
  const auto& head = parser.get();
  const bool is_http10 = head.version() < 11;
  if (head.count(http::field::transfer_encoding) > 0) {
    const bool plain = head.count(http::field::transfer_encoding) == 1 &&
                       ascii_lower(view(head[http::field::transfer_encoding])) == "chunked";
    if (!plain || !parser.chunked()) return "expected Transfer-Encoding: chunked, or none";
    if (is_http10) return "HTTP/1.0 has no Transfer-Encoding";
  }
  if (head.count(http::field::content_length) > 1) return "found several headers Content-Length";
  const size_t hosts = head.count(http::field::host);
  if (hosts > 1) return "found several headers Host";
  if (hosts == 0 && !is_http10) return "the header Host is missing";
  return "";
}

}  // namespace

std::string read_head(const RequestParser& parser, RequestHead& head) {
  const auto& parsed = parser.get();
  head.method = std::string(view(parsed.method_string()));
  for (const auto& field : parsed)
    head.headers.emplace_back(ascii_lower(view(field.name_string())),
                              std::string(view(field.value())));
  if (std::string why = malformed(parser); !why.empty()) return why;
  std::optional<Target> target = parse_target(view(parsed.target()));
  if (!target) return "the path " + for_log(view(parsed.target()));
  head.path = std::move(target->path);
  head.query = std::move(target->query);
  if (const auto length = parser.content_length(); length) head.content_length = *length;
  head.has_body = !parser.is_done();
  return "";
}

}  // namespace temper::http
