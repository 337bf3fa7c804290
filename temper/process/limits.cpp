#include "temper/process/limits.h"

#include <sys/resource.h>

#include <algorithm>

namespace temper::process {

void Limits::fields(Fields& f) {
  f.add("memory_bytes", memory_bytes, "maximum address space of a process; null: unlimited",
        at_least(1));
  f.add("cpu_seconds", cpu_seconds,
        "maximum CPU time of a process, after which it is replaced; null: unlimited", at_least(1));
  f.add("file_bytes", file_bytes, "largest file that a process can write; null: unlimited",
        at_least(0));
  f.add("open_files", open_files,
        "maximum number of files that a process can have open; null: unlimited", at_least(4));
  f.add("processes", processes,
        "maximum number of processes and threads of this user while a process starts one more "
        "(root has no such limit); null: unlimited",
        at_least(1));
  f.add("sandbox", sandbox,
        "run the program in a sandbox (Linux namespaces): it reads all files, writes only to its "
        "TMPDIR and the directories in `write`, has no network unless `network: true`, sees no "
        "other process, and ends with all that it started");
}

std::vector<ProcessOptions::Limit> Limits::list() const {
  std::vector<ProcessOptions::Limit> out;
  const auto add = [&](int resource, const std::optional<int64_t>& value) {
    rlimit now{RLIM_INFINITY, RLIM_INFINITY};
    ::getrlimit(static_cast<__rlimit_resource>(resource), &now);  // it cannot be raised
    if (value)
      out.push_back({resource, std::min<uint64_t>(static_cast<uint64_t>(*value), now.rlim_max)});
  };
  add(RLIMIT_AS, memory_bytes);
  add(RLIMIT_CPU, cpu_seconds);
  add(RLIMIT_FSIZE, file_bytes);
  add(RLIMIT_NOFILE, open_files);
  add(RLIMIT_NPROC, processes);
  return out;
}

}  // namespace temper::process
