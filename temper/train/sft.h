// Supervised fine-tuning.
#pragma once

#include <functional>
#include <ostream>

#include "temper/base/run_config.h"

namespace temper::train {

struct RunOutcome {
  bool interrupted = false;  // a signal asked for an early end; the run can go on
  int64_t steps = 0;
};

// Trains as the config says, resuming where a run of the same output_dir stopped. `console` is where progress goes.
// `stop` is polled between steps: true ends the run after a checkpoint. Throws ConfigError, DataError, RunError.
RunOutcome run_sft(const RunConfig& config, std::ostream& console, bool terminal, const std::function<bool()>& stop);

}  // namespace temper::train
