// Reading and writing without waiting, and the limits of a process as a config writes them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "temper/rewards/config.h"
#include "temper/rewards/process.h"

namespace temper::rewards {

Clock::duration seconds(double s);

// Appends what is there, about `most` bytes in all. False at the end of the stream.
bool read_some(int fd, std::string& into, size_t most);
// Writes what there is room for and takes it out. False: nobody reads any more. No signal.
bool write_some(int fd, std::string& unsent);

// memory_bytes and the like, none above what this program has itself.
std::vector<ProcessOptions::Limit> limits(const RewardSection& options);

}  // namespace temper::rewards
