// What a run samples with, and the servers that sample for it.
#pragma once

#include "temper/generate/config.h"
#include "temper/generate/remote/protocol.h"
#include "temper/plan/check_list.h"
#include "temper/plan/run_shape.h"
#include "temper/train/policy.h"

namespace temper::plan {

// What the caches of sampling take on each of `ranks` ranks of a machine.
void set_cache(SamplingShape& sampling, const generate::RolloutSection& rollout,
               ops::CacheDtype dtype, int64_t ranks);

// Its options, its grammar compiled for the model's tokens, and whether the cache of a rank holds
// run.sampling's longest prompt and a completion; with tensor parallelism over `tensor_ranks`.
// Throws ConfigError.
Finding check_rollout(const generate::RolloutSection& rollout, int64_t seed,
                      const train::Policy& policy, const RunShape& run, int64_t tensor_ranks);

// Every server, as the run does at its start. One that answers is enough for a run; one that is not
// of the section's kind, or has another model, fails. weights_dir: where the run writes weights for
// them. Throws ConfigError for urls that are none, and for a directory that cannot be written to.
Finding check_servers(const generate::ServerSection& section, const std::string& weights_dir,
                      const generate::remote::ServerNeeds& needs);

}  // namespace temper::plan
