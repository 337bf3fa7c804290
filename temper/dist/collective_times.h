// How long the collectives take between these ranks, for `temper doctor --nproc N`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/dist/group.h"

namespace temper::dist {

struct CollectiveTime {
  std::string collective;
  int64_t bytes;   // bytes of the whole float32 tensor
  double seconds;  // seconds of one call on the slowest rank: the mean of several calls
  // bytes that a rank sends in one call, counted as nccl-tests do for the bus bandwidth
  double sent_bytes;
  double bandwidth() const { return sent_bytes / seconds; }  // bytes per second that a rank sends
};

// Every rank of the group calls it with the same sizes (bytes, rounded up to an element for each
// rank) and gets the same numbers: all_reduce, all_gather, reduce_scatter, broadcast from the first
// rank and send between the first and the last (half of there and back), for each size. Calls are
// repeated for about `seconds` each, after some that are not counted. A group of one rank has none.
std::vector<CollectiveTime> time_collectives(Group& group, const std::vector<int64_t>& sizes,
                                             double seconds);

}  // namespace temper::dist
