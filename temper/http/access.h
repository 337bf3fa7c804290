// Decides who may send requests: API keys, and the rules for web pages in browsers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/http/server.h"

namespace temper::http {

struct AccessRules {
  std::string host;  // address that the server listens on
  // What clients send as "Authorization: Bearer KEY": one of these, separated by commas; empty:
  // none.
  std::string api_key;
  // Origins ("https://app.example", or "*": any) whose pages in a browser may use the server,
  // besides those of this machine (localhost and its addresses).
  std::vector<std::string> allowed_origins;
  // Host names under which the server is reached. On loopback without a key the server answers only
  // requests to localhost and to addresses, unless the name is listed here ("*": any): a web page
  // can make a host name of its own resolve to 127.0.0.1 (DNS rebinding).
  std::vector<std::string> allowed_hosts;
  // Whether the command has --allowed-origins and --allowed-hosts, which refusals then name.
  bool has_flags = true;
};

bool is_loopback(std::string_view host);
// The keys of such a list, without the spaces around them; and whether a key is among them.
std::vector<std::string_view> keys_of(std::string_view list);
bool has_key(std::string_view list, std::string_view key);

// The reason why a request is refused, with its HTTP status.
struct Denial {
  int status;
  std::string message;
};
// Refuses requests by Origin (403) and Host (421). Otherwise the page of a foreign site, open in a
// browser on the server's machine, could use the server.
std::optional<Denial> check_page(const AccessRules& rules, const RequestHead& head);
std::optional<Denial> check_key(const AccessRules& rules, const RequestHead& head);
// The number of the key that the request has; 0 where the server has none, and where the request
// has none of them, which check_key refuses.
size_t owner_of(const AccessRules& rules, const RequestHead& head);
// Refuses (415) a body whose Content-Type is not JSON; an absent type is accepted. Pages of any
// site may send text/plain and multipart/form-data without the browser asking the server first. The
// type of HTML forms, which is also the default of curl -d, is refused only where a browser sent
// it.
std::optional<Denial> check_json(const RequestHead& head);

// CORS headers, by which a browser lets the origin's page read the answer; none without an Origin.
Headers cors_headers(const RequestHead& head);
// The answer to a CORS preflight request (OPTIONS).
Answer preflight_answer();

}  // namespace temper::http
