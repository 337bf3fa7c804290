// What a process may use and reach, as a config writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/process/process.h"
#include "temper/process/sandbox.h"

namespace temper::process {

struct Limits {
  std::optional<int64_t> memory_bytes, cpu_seconds, file_bytes, open_files, processes;
  Sandbox sandbox;
  // Keys of the section that has them, not of one of their own.
  void fields(Fields& f);
  // The numbers, for Process; none above what this program has itself.
  std::vector<ProcessOptions::Limit> list() const;
};

}  // namespace temper::process
