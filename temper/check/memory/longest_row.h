// The longest row that a machine trains, by the memory of passes that are run without numbers
// (traced_pass.h).
#pragma once

#include "temper/check/memory/memory.h"

namespace temper::checks {

// Tokens of the longest row that trains in a pass of its own, on all of its tokens, within so many
// bytes of memory a rank, rounded down to two digits; 0: not even one of 256. Rows of more than
// 2^21 tokens are not planned one by one: from there on, memory is taken to grow evenly.
int64_t longest_row(const RunShape& run, const Ranks& ranks, int64_t program_bytes, int64_t usable);

}  // namespace temper::checks
