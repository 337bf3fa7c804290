// Log-probabilities straight from hidden states and the head's weight, in chunks of rows and blocks
// of the vocabulary: no [N, vocabulary] tensor exists in either direction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "temper/ops/ranks.h"
#include "temper/ops/weight.h"

namespace temper::ops {

struct HeadSpec {
  double scale = 1;          // logits are hidden · weight times this (Granite, Cohere)
  double soft_cap = 0;       // final logits become cap tanh(x / cap) (Gemma 2); 0: none
  double temperature = 1;    // logits are divided by it, after the cap; above 0
  bool entropy = false;      // compute the entropy too
  bool log_sum_exp = false;  // compute log_sum_exp too
  // Set where each of several ranks has an even part of the vocabulary, in order, with the same
  // hidden states; null: the weight is the whole vocabulary's.
  std::shared_ptr<Ranks> ranks = nullptr;
};

// What a low-rank adapter of the head adds to the logits of its rows, before HeadSpec's scale:
// scale low upᵀ. Without ranks.
struct HeadAdapter {
  at::Tensor low;  // [rows, rank]
  Weight up = {};  // [V, rank]
  double scale = 1;
  int64_t first_row = 0;  // of those of the call
};

struct TokenLogp {
  at::Tensor logp;         // [M]: log p(target[i] | hidden[i]); of K targets a row [M K]
  at::Tensor entropy;      // [M] in nats, or undefined
  at::Tensor log_sum_exp;  // [M]: log Σ exp x, or undefined
};

// The tokens to which each row's distribution is restricted: those that top-k, top-p or min-p left
// when the row's token was sampled.
struct KeptTokens {
  std::vector<int64_t> offset;  // [M + 1]
  // [offset[M]]: row i keeps id[offset[i]] to id[offset[i + 1] - 1], ascending. A row with none
  // keeps the whole vocabulary.
  std::vector<int32_t> id;
};

// hidden [M, H] (after the final norm), weight [V, H], target [M] in [0, V). No two adapters have a
// row in common; an adapter's gradients are those of a call with its rows alone. Differentiable in
// hidden, in the adapters' two and, unless it is frozen, in weight (or its trained rows), through
// all outputs. logp =
// x[target] - log Σ exp x in float32. Where logits overflow or are no numbers, so is logp. With
// `kept` all outputs are those of the distribution renormalized over the kept tokens, of which each
// target must be one (DeepSeek-AI, arXiv 2512.02556, section 3.1, "Keep Sampling Mask").
// Where target has K M entries, those of one row after the other, each row's logits are computed
// once; a row with fewer has -1, of which logp means nothing. Without `kept` and log_sum_exp.
TokenLogp token_logp(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                     const std::vector<int64_t>& target,
                     std::shared_ptr<const KeptTokens> kept = nullptr,
                     const std::vector<HeadAdapter>& adapters = {});

// Soft-capped, temperature-divided logits [M, V] of a few rows, for the sampler; log-sum-exp [M] by
// the rule of token_logp. Of each block of kLogitsBlock columns [M, blocks]: the largest logit, and
// the sum of exp(logit - that). Where logits overflow or are no numbers, the log-sum-exp is not
// finite: there is nothing to sample from.
constexpr int64_t kLogitsBlock = 512;
struct Logits {
  at::Tensor logits, log_sum_exp, block_max, block_sum;
  int64_t rank_columns = 0;  // columns that one rank computed: V without ranks
};
// y = exp(x - shift), as block_sum adds it.
void exp_shifted(int64_t count, const float* x, float shift, float* y);
Logits logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
              const std::vector<HeadAdapter>& adapters = {});

// log Σ exp x over the tokens `kept` (ascending, not empty) of a row of `logits` in the host's
// memory: what token_logp gives with the same KeptTokens, on the native backend to the bit.
float kept_log_sum_exp(const float* x, int64_t rank_columns, std::span<const int32_t> kept);

}  // namespace temper::ops
