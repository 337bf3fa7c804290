#include "temper/tinker/callers.h"

#include "temper/base/sha256.h"
#include "temper/http/access.h"
#include "temper/serve/answering.h"

namespace temper::tinker {
namespace {

using serve::error_answer;

// As X-API-Key, or as a Bearer token.
std::string_view sent_key(const http::RequestHead& head) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view key = head.header("x-api-key"), bearer = head.header("authorization");
  return key.empty() && bearer.starts_with(kBearer) ? bearer.substr(kBearer.size()) : key;
}

}  // namespace

std::optional<http::Answer> denial(const CallerRules& rules, const http::RequestHead& head) {
  const std::string_view key = sent_key(head);
  if (!rules.api_key.empty()) {
    if (http::has_key(rules.api_key, key)) return std::nullopt;
    return error_answer(401,
                        "missing or invalid API key; expected the server's in X-API-Key "
                        "(TINKER_API_KEY)");
  }
  if (!http::is_loopback(rules.host))
    return error_answer(403,
                        "the Tinker API needs a key (--api-key-env), because this server "
                        "listens on other addresses than loopback");
  if (key.starts_with("tml-")) return std::nullopt;
  return error_answer(401,
                      "missing API key; expected one that begins with tml- in X-API-Key "
                      "(TINKER_API_KEY)");
}

std::string owner_of(const http::RequestHead& head) { return sha256_hex(sent_key(head)); }

}  // namespace temper::tinker
