// The verb distill.
#pragma once

#include "temper/distill/config.h"
#include "temper/train/trainer.h"

namespace temper::distill {

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host);

// `temper distill --precompute`: writes the teacher's distill.top_k (0: 64) most likely tokens at
// every position of data.train and data.eval to distill.teacher_logprobs, for runs that read them
// instead of the teacher. Trains nothing.
void precompute_teacher(DistillConfig& config, std::ostream& console);

}  // namespace temper::distill
