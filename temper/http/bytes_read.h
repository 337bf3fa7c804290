// How much of what a server sends is read.
#pragma once

#include <cstdint>

namespace temper::http {

// Bytes of a TCP connection that this program has read since it began; 0: not known.
int64_t bytes_read(int socket);

}  // namespace temper::http
