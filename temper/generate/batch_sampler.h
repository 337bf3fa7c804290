// The next tokens of a batch of sequences, from the hidden states of their last ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "temper/generate/sampler.h"
#include "temper/models/model.h"

namespace temper::generate {

// One row of hidden states, and what decides the token that is sampled from it.
struct SampledRow {
  const SamplingOptions* options;
  SampleKey key;
  std::span<const int32_t> prompt, completion;
  int adapter = 0;  // the one whose head is read
};
struct Choice {
  int32_t token;
  float logp;  // at the row's temperature (greedy: at 1), before penalty and filters
};

// hidden [rows, hidden_size], after the final norm. A row's choice does not depend on the others.
// Throws RunError where logits are not finite.
std::vector<Choice> sample(models::CausalLM& model, const at::Tensor& hidden,
                           std::span<const SampledRow> rows);

}  // namespace temper::generate
