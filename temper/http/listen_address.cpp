#include "temper/http/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include "temper/base/error.h"

namespace temper::http {

std::string why_not_listening(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return temper::str("cannot listen on ", host, ": the host has no address here (",
                       ::gai_strerror(error),
                       "); expected a name or an address of this machine, or 0.0.0.0 for all of "
                       "its addresses");
  ::freeaddrinfo(found);
  constexpr const char* kElsewhere = "the address is not one of this machine";
  if (port == 0) return temper::str("cannot listen on ", host, ": ", kElsewhere);
  return temper::str("cannot listen on ", host, " port ", port, ": the port is in use, or ",
                     kElsewhere, "; --port 0 chooses a free one");
}

}  // namespace temper::http
