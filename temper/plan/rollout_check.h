// What a run samples with.
#pragma once

#include "temper/generate/config.h"
#include "temper/plan/check_list.h"
#include "temper/train/policy.h"

namespace temper::plan {

// Its options, its grammar compiled for the model's tokens. positions: that the model can tell
// apart. Throws ConfigError.
Finding check_rollout(const generate::RolloutSection& rollout, int64_t seed, int64_t positions,
                      const train::Policy& policy);

}  // namespace temper::plan
