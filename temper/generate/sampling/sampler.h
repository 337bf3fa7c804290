// Choosing the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "temper/ops/logits/token_logp.h"

namespace temper::generate {

// Logits divided by less may leave float32's range.
inline constexpr double kLeastTemperature = 1e-5;

using LogitBias = std::vector<std::pair<int32_t, float>>;  // token ids and what is added

// option_table.h has their ranges, help and names elsewhere.
struct SamplingOptions {
  double temperature = 1;  // 0: greedy; else at least kLeastTemperature
  int64_t top_k = 0;       // 0: all
  double top_p = 1;  // (0, 1]: the smallest set of likeliest tokens whose mass reaches it (Holtzman
                     // et al., 1904.09751)
  double min_p =
      0;  // [0, 1): tokens with at least this share of the likeliest one's probability (2407.01082)
  double repetition_penalty = 1;  // above 0: logits of tokens that occurred are divided by it, or
                                  // multiplied where negative (Keskar et al., 1909.05858)
  // Taken off the logits of tokens that the completion has: once, and once for each time that it
  // has them (OpenAI's).
  double presence_penalty = 0, frequency_penalty = 0;
  LogitBias logit_bias;
  // No run of so many tokens of prompt and completion comes twice; 0: it may (Paulus et al.,
  // 1705.04304, section 2.5).
  int64_t no_repeat_ngram = 0;
  uint64_t seed = 0;

  bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  bool changes_logits() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 ||
           !logit_bias.empty() || no_repeat_ngram > 0;
  }
};

// The key of one choice's random number: with the seed, nothing else decides it.
struct SampleKey {
  uint64_t index, sample, position;
};

// The random number of a choice, in [0, 1).
double uniform_of(const SamplingOptions& options, const SampleKey& key);

// One row of ops::logits, already divided by the temperature.
struct LogitsRow {
  const float* logits;  // [count]
  int64_t count;
  const float* block_max;  // [ceil(count / kLogitsBlock)]
  const float* block_sum;
};

// What stands before a choice, and what it may not be.
struct SampleContext {
  std::span<const int32_t> prompt, completion;
  std::span<const int32_t> banned;  // end tokens, before the least number of new tokens
  std::span<const uint32_t> mask;   // tokens that a grammar allows (grammar::Matcher); empty: all
};

// Chooses a token. Greedy ties go to the lowest id. The order is that of logit_rules.h, then top_k,
// top_p, min_p. `kept`, unless null, gets the tokens that the filters left, ascending; none where
// there are no filters or the choice is greedy.
int32_t choose(const SamplingOptions& options, const SampleKey& key, const LogitsRow& row,
               const SampleContext& context, std::vector<int32_t>* kept = nullptr);

// The tokens that the filters leave, likeliest first, with weights exp(logit - largest). For tests.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};
Candidates candidates(const SamplingOptions& options, const float* logits, int64_t count);

}  // namespace temper::generate
