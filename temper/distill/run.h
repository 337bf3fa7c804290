// The verb distill.
#pragma once

#include "temper/distill/config.h"
#include "temper/train/trainer.h"

namespace temper::distill {

// Trains as the config says, resuming where a run of the same output_dir stopped. Throws
// ConfigError, DataError, RunError.
train::RunOutcome run_distill(DistillConfig& config, const train::RunHost& host);

// `temper distill --precompute`: writes the teacher's likeliest tokens of every row of data.train
// and data.eval to distill.teacher_logprobs, distill.top_k of each (0: 64), for runs that read them
// instead of the teacher. Trains nothing.
void precompute_teacher(DistillConfig& config, std::ostream& console);

}  // namespace temper::distill
