// Checks of a run's sampling, and of the servers that sample for it.
#pragma once

#include "temper/check/check_list.h"
#include "temper/check/memory/run_shape.h"
#include "temper/generate/config.h"
#include "temper/generate/remote/protocol.h"
#include "temper/train/roles/policy.h"

namespace temper::checks {

// The options, the grammar compiled for the model's tokens, and whether one sampling rank's cache
// holds the longest prompt with a completion. tensor_ranks: ranks that hold a sampling model
// together.
// Throws ConfigError.
Finding check_rollout(const generate::RolloutSection& rollout, int64_t seed,
                      const train::Policy& policy, const RunShape& run, int64_t tensor_ranks);

// Every server, as the run does at its start. One that answers is enough for a run; one that is not
// of the section's kind, or has another model, fails. weights_dir: where the run writes weights for
// them. Throws ConfigError for urls that are none, and for a directory that cannot be written to.
Finding check_servers(const generate::ServerSection& section, const std::string& weights_dir,
                      const generate::remote::ServerNeeds& needs);

}  // namespace temper::checks
