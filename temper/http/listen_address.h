// Why a server has no address.
#pragma once

#include <string>

namespace temper::http {

// What keeps a server from listening there, after it was tried: a host without an address, one of
// another machine, or a port that is taken. port 0: a free one was asked for.
std::string why_not_listening(const std::string& host, int port);

}  // namespace temper::http
