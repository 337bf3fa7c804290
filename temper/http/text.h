// Text of HTTP/1.1 that the server itself writes and parses.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "temper/http/server.h"

namespace temper::http {

// How a client sees the end of an answer's body.
enum class BodyEnd { kLength, kChunks, kClose };

// The status line and headers of an answer, with the empty line after them. length: of the body in
// bytes, for kLength.
std::string response_head(int status, std::string_view type, const Headers& headers, BodyEnd end,
                          size_t length, bool keep_alive);
// One chunk of a chunked body; data is empty for the last one.
std::string chunk_of(std::string_view data);

// The path, decoded, and the query of a request's target ("/a%2Fb?c", "http://host/a"). Nothing
// where it is neither.
struct Target {
  std::string path, query;
};
std::optional<Target> parse_target(std::string_view target);

// Untrusted text for a log: printable ASCII, truncated where it is long.
std::string for_log(std::string_view text);

}  // namespace temper::http
