#include "temper/dist/collective_times.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "temper/base/clock.h"

namespace temper::dist {
namespace {

constexpr double kFewest = 3, kMost = 1000;  // fewest and most timed calls
constexpr int64_t kWarmUp =
    4;  // untimed calls: memory for a size that is new comes from the system

// Seconds of one call, the same on all ranks.
double seconds_of(Group& group, double seconds, const std::function<void()>& call) {
  const auto time_calls = [&](int64_t calls) {
    group.barrier();
    const double start = steady_seconds();
    for (int64_t i = 0; i < calls; ++i) call();
    return group.all_reduce_max((steady_seconds() - start) / static_cast<double>(calls));
  };
  const double about = time_calls(kWarmUp);
  return time_calls(static_cast<int64_t>(std::clamp(seconds / about, kFewest, kMost)));
}

}  // namespace

std::vector<CollectiveTime> time_collectives(Group& group, const std::vector<int64_t>& sizes,
                                             double seconds) {
  std::vector<CollectiveTime> times;
  const int ranks = group.size(), last = ranks - 1;
  if (ranks == 1) return times;
  for (const int64_t size : sizes) {
    const int64_t elements = (size + 4 * ranks - 1) / (4 * ranks) * ranks;
    at::Tensor whole = at::zeros({elements}), part = at::zeros({elements / ranks});
    const double bytes = 4.0 * static_cast<double>(elements);
    const double others = static_cast<double>(last) / ranks;
    const auto add = [&](const char* name, double sent, const std::function<void()>& call) {
      times.push_back({name, 4 * elements, seconds_of(group, seconds, call), sent});
    };
    add("all_reduce", 2 * others * bytes, [&] { group.all_reduce_sum(whole); });
    add("all_gather", others * bytes, [&] { group.all_gather(part, whole); });
    add("reduce_scatter", others * bytes, [&] { group.reduce_scatter_sum(whole, part); });
    add("broadcast", bytes, [&] { group.broadcast(whole, 0); });
    add("send", bytes, [&] {  // there and back
      if (group.rank() == 0) {
        group.send(whole, last);
        group.receive(whole, last);
      } else if (group.rank() == last) {
        group.receive(whole, 0);
        group.send(whole, 0);
      }
    });
    times.back().seconds /= 2;
  }
  return times;
}

}  // namespace temper::dist
