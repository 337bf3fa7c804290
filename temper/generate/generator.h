// Sampling many rows at once through a cache of keys and values, with the training forward pass's own kernels: the
// log-probabilities recorded are, bit for bit, those that scoring and training compute.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "temper/generate/sampler.h"
#include "temper/models/model.h"

namespace temper::generate {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 64;
  int64_t num_samples = 1;
  bool ignore_eos = false;
  int64_t max_batch = 64;              // sequences at once
  int64_t cache_bytes = int64_t{4} << 30;
  int64_t prefill_tokens = 2048;       // of prompts in one forward pass
};

struct Completion {
  int64_t index = 0, sample = 0;       // which row, which of its samples
  std::vector<int32_t> tokens;         // a sampled end token included
  std::vector<float> logprobs;         // at the sampling temperature (greedy: at 1), before top-k, top-p and min-p
  bool stopped = false;                // an end token ended it; else its length did
};

// Calls `done` for each completion, in the order of (index, sample), as soon as all earlier ones are done. What a
// completion says depends on (seed, index, sample) and its prompt alone. Throws DataError for an empty prompt.
void generate(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options,
              const std::function<void(Completion)>& done);

}  // namespace temper::generate
