// Ranks of a run on this machine.
#pragma once

#include "temper/cli/verbs.h"

namespace temper::cli {

// Takes --nproc N out of the arguments; 1 where it is absent. Throws ConfigError.
int take_nproc(const Arguments& arguments, Arguments& rest);
// Throws ConfigError for more ranks than this machine can start, and in a process that is a rank.
void check_nproc(int ranks);

// Starts this program once for each rank and waits. The first rank that fails ends the others; its
// exit status is returned. Ranks in `serving` have roles of their own: when one of them fails the
// others go on, and when all others have ended they are ended. SIGINT, SIGTERM and SIGHUP are
// passed on as SIGTERM; where ranks stop because of one, 128 + its number is returned.
int launch_ranks(int ranks, const std::vector<int>& serving, const char* verb,
                 const Arguments& arguments);

// Whether this is a rank that launch_ranks started.
bool is_launched();
// Whether this process is a rank that launch_ranks started, and not the first one.
bool is_later_rank();
// In a rank that launch_ranks started: it is to stop when the launcher has gone.
void end_with_launcher();
// Ends this process at once where the launcher says that another rank has ended, before the ranks
// have met: nobody else would tell it, and nothing would be lost.
void end_without_peers();

}  // namespace temper::cli
