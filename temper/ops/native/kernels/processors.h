// Threads that share the machine's processors, such as one that samples while another trains.
#pragma once

#include <atomic>
#include <memory>

namespace temper::kernels {

// How many threads the parallel loops of a thread take: it may change at any time, from any thread.
using ProcessorCount = std::shared_ptr<const std::atomic<int>>;

// The calling thread's loops follow the count from now on; null: they keep what they have.
void follow_processors(ProcessorCount count);
// Takes over the count of the calling thread. Matrix products do that before they begin, so a
// thread that is given processors uses them some hundred microseconds later.
void take_processors();

}  // namespace temper::kernels
