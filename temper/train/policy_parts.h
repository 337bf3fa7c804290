// The steps of load_policy (policy.h), for checks of a run that does not load it.
#pragma once

#include "temper/train/policy.h"

namespace temper::train {

// What a model directory says that is not computed as it says (models/config_values.h,
// models/files/untied_head.h), to be printed.
std::vector<std::string> model_warnings(const std::string& directory);
// How the config keeps the policy's weights. Throws ConfigError for what does not fit together.
models::Storage policy_storage(const RunConfig& config);
// Adds the adapter to go on from (adapter.path); the config then says what it is. Throws
// ConfigError where a written key disagrees with it.
models::LoraConfig resume_adapter(nn::Module& model, RunConfig& config);
// `adapted`: the adapter is on a head whose weight is the embedding's. Throws ConfigError where
// ranks share out that weight: a unit passes on gradients of its own parameters alone.
void check_tied_head(const RunConfig& config, bool adapted);

}  // namespace temper::train
