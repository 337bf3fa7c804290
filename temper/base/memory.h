#pragma once

#include <cstdint>

namespace temper {

// Bytes of memory that this process may use: the machine's, or its control group's limit where
// that is less.
int64_t usable_memory_bytes();

// The most resident memory that this process has had so far.
int64_t peak_memory_bytes();

// Gives memory that was freed back to the system, which the allocator would keep for a while.
void give_back_memory();

}  // namespace temper
