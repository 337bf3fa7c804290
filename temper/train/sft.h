// Supervised fine-tuning.
#pragma once

#include "temper/train/run.h"

namespace temper::train {

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
RunOutcome run_sft(const RunConfig& config, const RunHost& host);

}  // namespace temper::train
