// Two models' attention probabilities over the same tokens, compared. The maps exist for a tile of
// query tokens at a time, in either direction, never as [N, N]; no token's number depends on what
// is beside its row.
#pragma once

#include <memory>

#include "temper/ops/layers/attention.h"

namespace temper::ops {

// What one layer's probabilities are made of: q [N, num_heads * head_dim] and k [N, num_kv_heads *
// head_dim], as projected.
struct AttentionInputs {
  AttentionSpec spec;
  RotaryTable rotary;
  at::Tensor q, k;
};

// [N]: of each token, the mean over the student's heads of 1 - cosine between a head's
// probabilities over the keys up to the token and the mean of the teacher's heads that stand for
// it: consecutive ones, as many for each. The teacher's heads are a multiple of the student's.
// Differentiable in the student's q, k, norms and sinks.
at::Tensor attention_cosine_distance(const AttentionInputs& student, const AttentionInputs& teacher,
                                     const std::shared_ptr<const Forest>& forest);

// [N]: of each token, the sum over the teacher's heads t and the keys up to the token of
// (Σ_s map[t, s] student_s - teacher_t)². map [teacher's heads, student's heads]; differentiable in
// it, too.
at::Tensor attention_squared_error(const AttentionInputs& student, const AttentionInputs& teacher,
                                   const at::Tensor& map,
                                   const std::shared_ptr<const Forest>& forest);

}  // namespace temper::ops
