// Who may ask: keys, and pages of browsers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/serve/http_server.h"

namespace temper::serve {

struct AccessRules {
  std::string host;     // that the server listens on
  std::string api_key;  // what clients send as "Authorization: Bearer KEY"; empty: none
  // Origins ("https://app.example", or "*": any) whose pages in a browser may use the server,
  // beside those of this machine (localhost and its addresses).
  std::vector<std::string> allowed_origins;
  // Names by which the server is reached. A server on loopback without a key is asked by its own
  // names and by addresses alone unless they are here ("*": any): a page can make a name of its own
  // mean 127.0.0.1.
  std::vector<std::string> allowed_hosts;
};

bool is_loopback(std::string_view host);

// Why a request may not be answered, with HTTP's status.
struct Denial {
  int status;
  std::string message;
};
// By the request's Origin and Host. A page of a foreign site, open in the browser of somebody who
// runs a server, could ask it for anything else.
std::optional<Denial> check_page(const AccessRules& rules, const RequestHead& head);
std::optional<Denial> check_key(const AccessRules& rules, const RequestHead& head);
// A body has to be JSON by its Content-Type, or say nothing. The types that a page may send
// anywhere without being asked (text/plain, multipart/form-data) are refused. So is that of forms
// where a browser sends it; curl -d sends it, too.
std::optional<Denial> check_json(const RequestHead& head);

// Headers by which a browser lets the origin's page read the answer; none without an Origin.
Headers cors_headers(const RequestHead& head);
// The answer to a browser that asks what a page may send (OPTIONS).
Answer preflight_answer();

}  // namespace temper::serve
