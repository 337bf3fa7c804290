// Reading and writing without waiting, and waiting for many at once.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "temper/process/process.h"

namespace temper::process {

Clock::duration seconds(double s);

// Appends what is there, about `most` bytes in all. False at the end of the stream.
bool read_some(int fd, std::string& into, size_t most);
// Writes what there is room for and takes it out. False: nobody reads any more. No signal.
bool write_some(int fd, std::string& unsent);

// Returns when one of them is ready, at that time, or when a signal comes.
void wait_for(std::vector<pollfd>& fds, Clock::time_point until);

}  // namespace temper::process
