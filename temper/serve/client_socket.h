// The connection of a client, of which the HTTP library's handlers know the address alone.
#pragma once

#include <string>

namespace temper::serve {

class ClientSocket {
 public:
  // That from the address and port to this process's port. The connection has to outlive it.
  ClientSocket(const std::string& address, int port, int local_port);
  // False: the client has closed it. True where it was not found.
  bool is_open() const;

 private:
  int fd_ = -1;
};

}  // namespace temper::serve
