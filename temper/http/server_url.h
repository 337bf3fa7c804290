// A server's address and key, as configs name them.
#pragma once

#include <optional>
#include <string>

namespace temper::http {

// A server's address: the origin "http://host:port" and a prefix that all paths get: for
// "http://h:1/a/v1/" it is "/a".
struct ServerUrl {
  std::string origin, prefix;
  std::string str() const { return origin + prefix; }
};
// The address may end with /v1 or not. Throws ConfigError that begins with `key`, the config's,
// naming what was found.
ServerUrl parse_url(const std::string& text, const std::string& key = "rollout.server.urls");

// The API key in this variable of the environment; empty where none is named. Throws ConfigError
// that begins with `key`, the config's, where the environment lacks it or it is empty.
std::string api_key_in(const std::optional<std::string>& variable, const std::string& key);

// The parts of an origin: "http://host:port", "https://[::1]".
struct Origin {
  bool tls = false;
  std::string authority, host, port;
};
Origin parse_origin(const std::string& text);

// Whether a text has neither spaces nor control characters.
bool is_one_word(const std::string& text);

}  // namespace temper::http
