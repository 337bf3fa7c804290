// The program. What concerns a whole process, its allocator's settings and its environment, stands
// here and not in the library, which others link into programs of their own.
#include <c10/util/Logging.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "temper/cli/verbs.h"

// jemalloc's settings. Training frees and takes the same large buffers at every step: they are
// kept, on huge pages, instead of going back to the system and faulting in again. What is kept has
// to serve requests of every size: by default jemalloc takes no free extent of more than 64 times
// the request, which, where nothing goes back, left more and more of them unused (in 3,000 steps of
// a tiny run memory doubled).
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf =
    "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,lg_extent_max_active_fit:20,"
    "thp:always,metadata_thp:auto,narenas:2";
}

// Idle OpenMP threads spin at most 3,000 iterations (tens of microseconds; it depends on the
// processor's PAUSE instruction), then sleep. libgomp's default is 300,000. Spinning takes
// processor time from other programs, perhaps from the very thread that is waited for: two runs
// that shared two cores were measured two to five times as fast with 3,000 as with 20,000. libgomp
// reads its environment when it is loaded, before main and out of reach of setenv, so the program
// starts itself again with the variable set, before any library has done anything.
static void limit_spinning(int, char** argv, char** environment) {
  constexpr int kMostVariables = 4000;
  static char spin[] = "GOMP_SPINCOUNT=3000", path[4096];
  static char* changed[kMostVariables + 2];
  int count = 0;
  for (; environment[count]; ++count) {
    if (count == kMostVariables || std::strncmp(environment[count], "OMP_WAIT_POLICY=", 16) == 0 ||
        std::strncmp(environment[count], "GOMP_SPINCOUNT=", 15) == 0)
      return;
    changed[count] = environment[count];
  }
  changed[count] = spin;
  if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) execve(path, argv, changed);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char**, char**) = limit_spinning;

int main(int argc, char** argv) {
  // A file that may not become larger (ulimit -f) is an error of writing, not the program's end. A
  // handler and not SIG_IGN: programs that are started inherit only the latter.
  std::signal(SIGXFSZ, [](int) {});
  // What LibTorch logs of a connection that ended is a stack trace before the error that says so.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  return temper::cli::run({argv + 1, argv + argc});
}
