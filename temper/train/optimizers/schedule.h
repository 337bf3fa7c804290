// Learning rates over a run. Every schedule begins with a linear warm-up from 0; the formulas are
// those of transformers' get_*_schedule.
#pragma once

#include <cstdint>

#include "temper/train/config.h"

namespace temper::train {

// How many of a run's steps warm up: optimizer.warmup_steps, or the share optimizer.warmup_ratio of
// them, rounded up.
int64_t warmup_steps(const OptimizerSection& config, int64_t steps);

// The learning rate of step `step` (from 1) of `steps`.
double learning_rate(const OptimizerSection& config, int64_t step, int64_t steps);

}  // namespace temper::train
