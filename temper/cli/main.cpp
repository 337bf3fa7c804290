#include <cstdlib>

#include "temper/cli/verbs.h"

// jemalloc's settings. Training frees and takes the same large buffers at every step: they are
// kept, on huge pages, instead of going back to the system and faulting in again.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf =
    "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,metadata_thp:auto,narenas:"
    "2";
}

// Threads that wait for each other spin for a fraction of a millisecond, then sleep. libgomp's own
// default spins for seconds when it counts as many threads as cores, which on a machine that does
// anything else slows both down by ten. It reads its environment when it is loaded, so this has to
// run before it.
static void limit_spinning(int, char**, char**) {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "20000", 0);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char**, char**) = limit_spinning;

int main(int argc, char** argv) { return temper::cli::run({argv + 1, argv + argc}); }
