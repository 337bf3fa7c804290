// Loops that threads share where that pays.
#pragma once

#include <cstdint>

namespace temper::kernels {

// body(i) for each i in [0, count): a range of them for each thread, or one after the other. Not an
// OpenMP region with an `if`: where that is false, the region is one of a single thread, whose
// barriers are system calls that wake nobody and take longer than a decoded token's row.
template <class Body>
void for_each_index(int64_t count, bool parallel, const Body& body) {
  if (!parallel) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace temper::kernels
