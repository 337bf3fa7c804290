// Choosing the next token.
#pragma once

#include <cstdint>
#include <vector>

namespace temper::generate {

struct SamplingOptions {
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // (0, 1]: the smallest set of likeliest tokens whose mass reaches it (Holtzman et al., 1904.09751)
  double min_p = 0;        // [0, 1): tokens with at least this share of the likeliest one's probability (2407.01082)
  uint64_t seed = 0;
};

// The coin of one choice: nothing else decides it.
struct SampleKey {
  uint64_t index, sample, position;
};

// Chooses from a row of `count` logits that are already divided by the temperature. Greedy ties go to the lowest id.
// The order of filters is transformers': top_k, top_p, min_p.
int32_t choose(const SamplingOptions& options, const SampleKey& key, const float* logits, int64_t count);

}  // namespace temper::generate
