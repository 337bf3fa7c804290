// The verb distill.
#pragma once

#include "temper/distill/config.h"
#include "temper/train/trainer.h"

namespace temper::distill {

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host);

}  // namespace temper::distill
