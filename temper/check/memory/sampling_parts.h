// What sampling takes of a rank's memory, beside the models.
#pragma once

#include <vector>

#include "temper/check/memory/memory.h"
#include "temper/ops/kv_store.h"

namespace temper::checks {

// The models that sample: the policy first; none where the run samples nothing itself.
std::vector<const ModelRole*> samplers(const RunShape& run);

// A page of keys and values as a rank's sampler has it, of all layers.
ops::CachePage cache_page(const ModelRole& sampler, ops::CacheDtype dtype, int64_t tensor_ranks,
                          at::Device device);

// "cache", "packed", "logits" and, under FSDP, "gathered" while this model samples.
Parts sampling_parts(const RunShape& run, const ModelRole& sampler, const Ranks& ranks);

}  // namespace temper::checks
