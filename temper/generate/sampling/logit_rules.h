// Logit processors: bias, penalties, bans and grammar masks. They never change recorded
// log-probabilities.
#pragma once

#include <vector>

#include "temper/generate/sampling/sampler.h"

namespace temper::generate {

// The logits that a token is chosen from: of `row`, which is divided by the temperature already,
// with bias, repetition, frequency and presence penalty in this order (vLLM's), each as if before
// the division; then -inf for what is banned, what would repeat a run of tokens, and what the mask
// does not allow. Where that leaves nothing, the mask alone is obeyed.
std::vector<float> apply_rules(const SamplingOptions& options, const LogitsRow& row,
                               const SampleContext& context);

// Tokens that would repeat a run of `size` tokens of prompt and completion.
std::vector<int32_t> repeating(int64_t size, std::span<const int32_t> prompt,
                               std::span<const int32_t> completion);

}  // namespace temper::generate
