#include "temper/ops/native/kernels/processors.h"

#include <omp.h>

#include <utility>

namespace temper::kernels {
namespace {

ProcessorCount& count_of_thread() {
  thread_local ProcessorCount count;
  return count;
}

}  // namespace

void follow_processors(ProcessorCount count) {
  if (count_of_thread() != count) count_of_thread() = std::move(count);
  take_processors();
}

void take_processors() {
  const ProcessorCount& count = count_of_thread();
  if (!count) return;
  const int threads = count->load(std::memory_order_relaxed);
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

}  // namespace temper::kernels
