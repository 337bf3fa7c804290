// The launcher's settings for this rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace temper::dist {

class Group;

// The variable by which a launcher hands rank 0 the socket, bound to MASTER_PORT, on which to
// listen.
inline constexpr const char* kListeningSocket = "TEMPER_LISTENING_SOCKET";

struct Environment {
  int rank = 0, size = 1;
  std::string host;  // host of the first rank
  uint16_t port = 0;
  std::chrono::seconds timeout{};  // time limit for the ranks to find each other
};

// Throws ConfigError for variables that are half set, or out of range.
Environment read_environment();

// The socket that the launcher handed this rank, which programs that it starts do not get. None in
// those, which have the variable without the socket, or with another port.
std::optional<int> inherited_socket(const Environment& environment);

// This machine's name.
std::string host_name();

// The number of this rank among all of the run, of which a group or mesh may have some only.
int run_rank(const Group& group);

}  // namespace temper::dist
