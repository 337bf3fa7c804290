// Choosing the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "temper/ops/token_logp.h"

namespace temper::generate {

struct SamplingOptions {
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;  // (0, 1]: the smallest set of likeliest tokens whose mass reaches it (Holtzman
                     // et al., 1904.09751)
  double min_p =
      0;  // [0, 1): tokens with at least this share of the likeliest one's probability (2407.01082)
  double repetition_penalty = 1;  // above 0: logits of tokens that occurred are divided by it, or
                                  // multiplied where negative (Keskar et al., 1909.05858)
  uint64_t seed = 0;

  bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

// The key of one choice's random number: with the seed, nothing else decides it.
struct SampleKey {
  uint64_t index, sample, position;
};

// One row of ops::logits, already divided by the temperature.
struct LogitsRow {
  const float* logits;  // [count]
  int64_t count;
  const float* block_max;  // [ceil(count / kLogitsBlock)]
  const float* block_sum;
};

// Chooses a token. Greedy ties go to the lowest id. The repetition penalty looks at prompt and
// completion, the tokens so far. The order is transformers': penalty, temperature, top_k,
// top_p, min_p.
int32_t choose(const SamplingOptions& options, const SampleKey& key, const LogitsRow& row,
               std::span<const int32_t> prompt, std::span<const int32_t> completion);

// The tokens that the filters leave, likeliest first, with weights exp(logit - largest). For tests.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};
Candidates candidates(const SamplingOptions& options, const float* logits, int64_t count);

}  // namespace temper::generate
