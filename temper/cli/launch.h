// Ranks of a run on this machine.
#pragma once

#include "temper/cli/verbs.h"

namespace temper::cli {

// Takes --nproc N out of the arguments; 1 where it is absent. Throws ConfigError.
int take_nproc(const Arguments& arguments, Arguments& rest);

// Starts this program once for each rank and waits. The first rank that fails ends the others; its
// exit status is returned. SIGINT and SIGTERM are passed on.
int launch_ranks(int ranks, const char* verb, const Arguments& arguments);

}  // namespace temper::cli
