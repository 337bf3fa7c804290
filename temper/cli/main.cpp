#include "temper/cli/verbs.h"

// jemalloc's settings. Training frees and takes the same large buffers at every step: they are kept, on huge pages, instead
// of going back to the system and faulting in again.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always,metadata_thp:auto,narenas:2";
}

int main(int argc, char** argv) { return temper::cli::run({argv + 1, argv + argc}); }
