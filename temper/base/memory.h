#pragma once

#include <cstdint>
#include <optional>

namespace temper {

// Bytes of memory that this process may use: the machine's, or its control group's limit where
// that is less.
int64_t usable_memory_bytes();

// The resident memory of this process now.
int64_t resident_memory_bytes();
// The most resident memory that this process has had so far.
int64_t peak_memory_bytes();
// A number that is at least as large, and takes a microsecond.
int64_t most_memory_bytes();

// Processes of this program that share this machine, as their launcher says (LOCAL_WORLD_SIZE, at
// least 1); none: there is no launcher.
std::optional<int64_t> ranks_on_machine();

// Returns freed memory, which the allocator would keep for a while, to the system.
void give_back_memory();

}  // namespace temper
