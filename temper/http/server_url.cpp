#include "temper/http/server_url.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "temper/base/error.h"

namespace temper::http {

Origin parse_origin(const std::string& text) {
  const size_t begin = text.find("://") + 3;
  Origin origin{.tls = text.starts_with("https"), .authority = text.substr(begin)};
  const size_t bracket = origin.authority.rfind(']');
  const size_t colon = origin.authority.find(':', bracket == std::string::npos ? 0 : bracket);
  origin.host = origin.authority.substr(0, colon);
  if (origin.host.starts_with("[") && origin.host.ends_with("]"))
    origin.host = origin.host.substr(1, origin.host.size() - 2);
  origin.port = colon != std::string::npos ? origin.authority.substr(colon + 1)
                : origin.tls               ? "443"
                                           : "80";
  return origin;
}

bool is_one_word(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 127; });
}

std::string api_key_in(const std::optional<std::string>& variable, const std::string& key) {
  if (!variable) return {};
  check<ConfigError>(!variable->empty(), key,
                     ": found an empty name, expected that of an environment variable");
  const char* const found = std::getenv(variable->c_str());
  check<ConfigError>(found != nullptr, key, ": the environment has no ", *variable,
                     "; it must hold the API key");
  check<ConfigError>(*found != '\0', key, ": the environment variable ", *variable,
                     " is set, but empty; it must hold the API key");
  return found;
}

ServerUrl parse_url(const std::string& text, const std::string& key) {
  const size_t scheme = text.find("://");
  const std::string name = text.substr(0, scheme);
  check<ConfigError>(scheme != std::string::npos && (name == "http" || name == "https") &&
                         scheme + 3 < text.size() && text[scheme + 3] != '/' && is_one_word(text),
                     key, ": found ", text, ", expected http://HOST:PORT or https://HOST");
  const size_t path = text.find('/', scheme + 3);
  ServerUrl url{text.substr(0, path), path == std::string::npos ? "" : text.substr(path)};
  const std::string port = parse_origin(url.origin).port;
  check<ConfigError>(!port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string::npos &&
                         std::stoi(port) >= 1 && std::stoi(port) <= 65535,
                     key, ": found the port `", port, "` in ", text, ", expected 1 to 65535");
  const auto cut_slashes = [&] {
    while (url.prefix.ends_with("/")) url.prefix.pop_back();
  };
  cut_slashes();
  if (url.prefix.ends_with("/v1")) url.prefix.resize(url.prefix.size() - 3);
  cut_slashes();
  return url;
}

}  // namespace temper::http
