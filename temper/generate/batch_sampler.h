// The next tokens of a batch of sequences, from the hidden states of their last ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "temper/generate/request.h"
#include "temper/grammar/grammar.h"
#include "temper/models/model.h"

namespace temper::generate {

// One row of hidden states, and what decides the token that is sampled from it.
struct SampledRow {
  const SamplingOptions* options;
  SampleKey key;
  SampleContext context;  // without a mask
  int adapter = 0;        // the one whose head is read
  int64_t top_logprobs = 0;
  grammar::Matcher* matcher = nullptr;  // goes on by the token that is chosen; null: no grammar
};
struct Choice {
  int32_t token;
  float logp;       // at the row's temperature (greedy: at 1), before rules and filters
  TopLogprobs top;  // as many as the row asks for
};

// The k likeliest tokens of a row of logits, of equals the lower id first.
TopLogprobs likeliest(const float* logits, int64_t count, float log_sum, int64_t k);

// hidden [rows, hidden_size], after the final norm. A row's choice does not depend on the others.
// Throws RunError where logits are not finite.
std::vector<Choice> sample(models::CausalLM& model, const at::Tensor& hidden,
                           std::span<const SampledRow> rows);

}  // namespace temper::generate
