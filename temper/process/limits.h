// Limits of a process's resources, as a config writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/process/process.h"

namespace temper::process {

struct Limits {
  std::optional<int64_t> memory_bytes, cpu_seconds, file_bytes, open_files, processes;
  // Keys of the section that has them, not of one of their own.
  void fields(Fields& f);
  // For Process; none above what this program has itself.
  std::vector<ProcessOptions::Limit> list() const;
};

}  // namespace temper::process
