#include "temper/dist/environment.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "temper/base/error.h"
#include "temper/dist/group.h"

namespace temper::dist {
namespace {

constexpr const char* kThisHost = "127.0.0.1";
constexpr const char* kTimeout = "TEMPER_TIMEOUT_SECONDS";
constexpr std::chrono::seconds kDefaultTimeout{120};
constexpr int kLongestTimeout = 7 * 24 * 3600;
constexpr int kMostRanks = 1 << 20;

int environment_number(const char* name, int least, int most) {
  const char* text = std::getenv(name);
  int value = -1;
  if (text) {
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc() || stop != end) value = -1;
  }
  check<ConfigError>(
      value >= least && value <= most, "environment: ", name,
      text ? temper::str(" is `", std::string(text).substr(0, 40), "`") : " is not set",
      ", expected a number from ", least, " to ", most,
      " for each of several ranks; start them with torchrun or --nproc");
  return value;
}

}  // namespace

Environment read_environment() {
  Environment e;
  if (!std::getenv("WORLD_SIZE")) {
    check<ConfigError>(!std::getenv("RANK"),
                       "environment: RANK is set and WORLD_SIZE is not; start ranks with torchrun "
                       "or --nproc, or unset RANK");
    return e;
  }
  e.size = environment_number("WORLD_SIZE", 1, kMostRanks);
  e.rank = environment_number("RANK", 0, kMostRanks);
  check<ConfigError>(e.rank < e.size, "environment: RANK is ", e.rank, ", expected 0 to ",
                     e.size - 1, " for WORLD_SIZE ", e.size);
  if (e.size == 1) return e;
  const char* host = std::getenv("MASTER_ADDR");
  e.host = host && *host ? host : kThisHost;
  e.port = static_cast<uint16_t>(environment_number("MASTER_PORT", 1, 65535));
  e.timeout = std::getenv(kTimeout)
                  ? std::chrono::seconds(environment_number(kTimeout, 0, kLongestTimeout))
                  : kDefaultTimeout;
  return e;
}

std::optional<int> inherited_socket(const Environment& environment) {
  if (environment.rank != 0 || !std::getenv(kListeningSocket)) return {};
  const int socket = environment_number(kListeningSocket, 0, 1 << 20);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const bool is_it = ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                     address.sin_family == AF_INET && ntohs(address.sin_port) == environment.port;
  if (!is_it) return {};
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  return socket;
}

int run_rank(const Group& group) {
  const Environment environment = read_environment();
  return environment.size > 1 ? environment.rank : group.rank();
}

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace temper::dist
