// A part of a run in processes of its own: what `temper verify` and `temper sweep` tell the
// training verbs that they start, by their environment.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "temper/train/run/run_directory.h"

namespace temper::cli {

struct Repetition {
  std::set<int64_t> saves;   // steps after which a checkpoint is saved
  int64_t end = 0;           // the step after which the process ends, if the run has not ended
  bool finishes = false;     // the run ends there, as if its plan did
  bool is_silent = false;    // nothing is printed
  std::string tensors = {};  // a file for what trains in step `tensors_of`, with ".RANK" behind it
  int64_t tensors_of = 0;

  // What is done after each step.
  train::RunHost::After after(int64_t step) const;
  // For processes that this one starts from now on; nullopt: they repeat nothing.
  static void tell(const std::optional<Repetition>& what);
  // What this process was told. Throws ConfigError.
  static std::optional<Repetition> told();
};

}  // namespace temper::cli
