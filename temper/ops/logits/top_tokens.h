// A teacher's distributions over the vocabulary, and its likeliest tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "temper/ops/logits/token_logp.h"

namespace temper::ops {

// A teacher that is a model: hidden [M, H_t] after its final norm, weight [V, H_t], of its own
// format.
struct TeacherHead {
  HeadSpec spec;
  at::Tensor hidden;
  Weight weight;
};

// A teacher that is numbers: its likeliest tokens of each row, id [M, k] (int64, distinct in a row)
// and their logits or log-probabilities at temperature 1 [M, k].
struct TopTokens {
  at::Tensor id, logit;
};

// The k likeliest tokens of each row, likeliest first (of equals the lower id), with their logits
// divided by the temperature. No row's tokens depend on another row.
TopTokens likeliest_tokens(const TeacherHead& teacher, double temperature, int64_t k);

// The same, with log-probabilities at temperature 1.
TopTokens top_tokens(const TeacherHead& teacher, int64_t k);

}  // namespace temper::ops
