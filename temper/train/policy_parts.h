// The steps of load_policy (policy.h), for checks of a run that does not load it.
#pragma once

#include "temper/train/policy.h"

namespace temper::train {

// How the config keeps the policy's weights. Throws ConfigError for what does not fit together.
models::Storage policy_storage(const RunConfig& config);
// Adds the adapter to go on from (adapter.path); the config then says what it is. Throws
// ConfigError where a written key disagrees with it.
models::LoraConfig resume_adapter(nn::Module& model, RunConfig& config);

}  // namespace temper::train
