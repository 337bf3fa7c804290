// LoRA runs of a sweep that share a base and its passes in this process (train/joint).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "temper/cli/experiments/repetition.h"
#include "temper/cli/training.h"

namespace temper::cli {

// What runs have in common that share a base; empty: the run has a process of its own. `verb`: its
// verb.
std::string shared_base(const TrainingVerb& verb, const train::RunConfig& config);

struct JointSweepRun {
  std::string name;
  Arguments arguments;
  std::optional<Repetition> what;
  bool failed = false;  // set where it ended with an error, which was printed
};
// Trains all of them. Each line that a run prints begins with its name. most_tokens: of a pass that
// runs share. `ended` is called, by one thread at a time, when a run has ended. Gives the exit
// status of a program that was asked to stop, else 0.
int run_jointly(const TrainingVerb& verb, std::vector<JointSweepRun>& runs, int64_t most_tokens,
                const std::function<void()>& ended);

}  // namespace temper::cli
