// The longest row that a machine trains, by the memory of passes that are run without numbers
// (traced_pass.h).
#pragma once

#include "temper/check/memory/memory.h"

namespace temper::checks {

// The longest row, in tokens, that trains in a pass of its own, on all of its tokens, within
// `usable` bytes of memory per rank: found to within 1/32, then rounded down to two digits; 0: not
// even a row of 16 tokens fits. program_bytes: as in plan_memory(). No row beyond 2^19 tokens is
// planned: from there on, memory is taken to grow evenly.
int64_t longest_row(const RunShape& run, const Ranks& ranks, int64_t program_bytes, int64_t usable);

}  // namespace temper::checks
