#include "temper/http/access.h"

#include <algorithm>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/http/text.h"

namespace temper::http {
namespace {

// The host of "host:port" or "[::1]:port".
std::string without_port(std::string_view authority) {
  if (authority.starts_with('[')) return ascii_lower(authority.substr(1, authority.find(']') - 1));
  std::string host = ascii_lower(authority.substr(0, authority.find(':')));
  if (host.ends_with('.')) host.pop_back();
  return host;
}

// True for an IP address. No host name consists of these characters alone, so nobody can register
// one.
bool is_address(std::string_view host) {
  return host.find(':') != std::string_view::npos ||
         (!host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

bool has(const std::vector<std::string>& list, std::string_view text) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& one) {
    return one == "*" || ascii_lower(one) == text;
  });
}

std::string origin_of(const RequestHead& head) { return ascii_lower(head.header("origin")); }

bool is_known_origin(const AccessRules& rules, const std::string& origin) {
  if (has(rules.allowed_origins, origin)) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string::npos && is_loopback(without_port(origin.substr(scheme + 3)));
}

// Compares in a time that does not depend on where the keys differ.
bool same_key(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i < b.size() ? i : 0]);
  return difference == 0;
}

}  // namespace

std::vector<std::string_view> keys_of(std::string_view list) {
  std::vector<std::string_view> keys;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string_view key = list.substr(at, end - at);
    while (key.starts_with(' ')) key.remove_prefix(1);
    while (key.ends_with(' ')) key.remove_suffix(1);
    if (!key.empty() && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    at = end + 1;
  }
  return keys;
}

bool has_key(std::string_view list, std::string_view key) {
  bool found = false;
  for (const std::string_view one : keys_of(list)) found |= same_key(key, one);
  return found;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "::1" ||
         (host.starts_with("127.") && is_address(host));
}

std::optional<Denial> check_page(const AccessRules& rules, const RequestHead& head) {
  const std::string origin = origin_of(head);
  const bool known = !origin.empty() && is_known_origin(rules, origin);
  const bool foreign = !origin.empty() ? !known : head.header("sec-fetch-site") == "cross-site";
  if (foreign)
    return Denial{403, temper::str("requests of web pages from ",
                                   origin.empty() ? "other sites" : for_log(origin), " are refused",
                                   rules.has_flags ? "; --allowed-origins admits sites" : "")};
  if (!rules.api_key.empty() || !is_loopback(rules.host)) return std::nullopt;
  const std::string host = without_port(head.header("host"));
  if (host.empty() || is_address(host) || is_loopback(host) || has(rules.allowed_hosts, host))
    return std::nullopt;
  return Denial{421, temper::str("the header Host names ", for_log(host),
                                 ", expected localhost or an address",
                                 rules.has_flags ? "; --allowed-hosts admits other names" : "")};
}

std::optional<Denial> check_key(const AccessRules& rules, const RequestHead& head) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view sent = head.header("authorization");
  if (rules.api_key.empty() ||
      (sent.starts_with(kBearer) && has_key(rules.api_key, sent.substr(kBearer.size()))))
    return std::nullopt;
  return Denial{401, "missing or invalid API key; expected the header Authorization: Bearer KEY"};
}

// All keys are compared, so that the time does not tell which one it is.
size_t owner_of(const AccessRules& rules, const RequestHead& head) {
  const std::vector<std::string_view> keys = keys_of(rules.api_key);
  size_t owner = 0;
  for (size_t i = 0; i < keys.size(); ++i)
    if (same_key(head.header("authorization"), "Bearer " + std::string(keys[i]))) owner = i;
  return owner;
}

std::optional<Denial> check_json(const RequestHead& head) {
  std::string type = ascii_lower(head.header("content-type"));
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.pop_back();
  if (type.empty() || type == "application/json" ||
      (type.starts_with("application/") && type.ends_with("+json")))
    return std::nullopt;
  const bool browser = !head.header("origin").empty() || !head.header("sec-fetch-site").empty();
  if (type == "application/x-www-form-urlencoded" && !browser) return std::nullopt;
  return Denial{415, "Content-Type: found " + for_log(type) + ", expected application/json"};
}

Headers cors_headers(const RequestHead& head) {
  const std::string origin(head.header("origin"));
  if (origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", origin}, {"Vary", "Origin"}};
}

Answer preflight_answer() {
  return {204,
          "",
          "",
          {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
           {"Access-Control-Allow-Headers", "*, Authorization, Content-Type"},
           {"Access-Control-Max-Age", "600"}}};
}

}  // namespace temper::http
