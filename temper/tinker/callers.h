// Who asks: clients are kept apart by the API keys that they send.
#pragma once

#include <optional>
#include <string>

#include "temper/http/server.h"

namespace temper::tinker {

struct CallerRules {
  std::string host;     // address that the server listens on
  std::string api_key;  // those that are let in, separated by commas (http::AccessRules); empty:
                        // any that begins with tml-, on loopback alone
};

// The refusal of a request (401, 403) whose key is none of the server's.
std::optional<http::Answer> denial(const CallerRules& rules, const http::RequestHead& head);
// The name of whoever has the request's key: its SHA-256. All that a client makes is its owner's.
std::string owner_of(const http::RequestHead& head);

}  // namespace temper::tinker
