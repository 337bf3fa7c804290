// The choice of a next token among logits that stay where they were computed: of a row no more than
// its token and log-probability travels to the host. For logits in the host's memory
// generate/sampling/sampler.h defines the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "temper/ops/logits/token_logp.h"

namespace temper::ops {

// The rule by which one row's token is chosen.
struct ChoiceRule {
  bool greedy = false;  // the largest logit, of equals that of the lowest id
  // Else the token in whose part of the distribution this number in [0, 1) falls: parts are in
  // ascending order of ids, or, with filters, in descending order of the logits that they leave.
  double quantile = 0;
  // Filters, in this order: the top_k likeliest tokens, 0: all; the fewest likeliest tokens with at
  // least a share of top_p of their mass; tokens with at least min_p of the likeliest one's
  // probability.
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;

  bool filters() const { return !greedy && (top_k > 0 || top_p < 1 || min_p > 0); }
};

// Takes tokens out of what is chosen from, in every row: their logits become so low that they have
// no mass, which block_max and block_sum then say; log_sum_exp stays that of all.
void exclude(std::span<const int32_t> tokens, Logits& logits);

// logits [M, V], one rule a row -> [M, 3] float64 on the same device: the token's id, its
// log-probability (logit less log-sum-exp, in float32) and the log-sum-exp. Where that is not
// finite, the id is any of the vocabulary.
//
// The token is the host's unless the quantile lies within rounding of the border of two tokens'
// parts: masses are sums of float32 exponentials whose last bit may be another one. Greedy choices
// are the host's.
at::Tensor choose(const Logits& logits, const std::vector<ChoiceRule>& rules);

}  // namespace temper::ops
