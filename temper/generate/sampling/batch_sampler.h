// The next tokens of a batch of sequences, from the hidden states of their last ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "temper/generate/request.h"
#include "temper/grammar/grammar.h"
#include "temper/models/model.h"

namespace temper::generate {

// Rows of hidden states of one sequence, of its last token and of what was drafted to follow it,
// and what decides the tokens that are sampled from them.
struct SampledRows {
  const SamplingOptions* options;
  SampleKey key;  // of the first row
  std::span<const int32_t> prompt;
  std::span<const int32_t> completion;  // with the drafted tokens
  int64_t drafted = 0;                  // the last of them
  std::span<const int32_t> ends;        // banned before the completion has min_tokens
  int64_t min_tokens = 0;
  int adapter = 0;  // the one whose head is read
  int64_t top_logprobs = 0;
  bool record_kept = false;             // GenerationOptions::record_kept
  grammar::Matcher* matcher = nullptr;  // goes on by the tokens that are chosen; null: no grammar

  int64_t rows() const { return 1 + drafted; }
};
// Where logits are not finite.
inline constexpr const char* kNotFinite =
    "the model's logits are not finite: its weights hold NaN or infinity, or overflow";

struct Choice {
  int32_t token;
  float logp;  // at the row's temperature (greedy: at 1), before rules and filters; with `kept`
               // among these tokens alone
  TopLogprobs top;                 // as many as the row asks for
  bool ended;                      // nothing may follow in its grammar
  std::vector<int32_t> kept = {};  // what the filters left, where that is recorded
};

// The k likeliest tokens of a row of logits, of equals the lower id first.
TopLogprobs likeliest(const float* logits, int64_t count, float log_sum, int64_t k);

// hidden [rows of all, hidden_size], after the final norm. No choice is one of `never`; logp and
// top are of all tokens. Of each sequence the choices up to the first that is not the drafted
// token, or that ends its grammar; they do not depend on the other sequences, nor on what was
// drafted. A sequence has no choice where its logits are not finite.
std::vector<std::vector<Choice>> sample(models::CausalLM& model, const at::Tensor& hidden,
                                        std::span<const SampledRows> sequences,
                                        std::span<const int32_t> never = {});

}  // namespace temper::generate
