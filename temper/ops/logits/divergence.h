// Divergences between a student's and a teacher's distribution over the vocabulary, straight from
// the hidden states and weights of both heads, in chunks of rows and blocks of the vocabulary: no
// [N, vocabulary] tensor exists in either direction. No row's number depends on another row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "temper/ops/logits/top_tokens.h"
#include "temper/ops/specs.h"

namespace temper::ops {

struct DivergenceSpec {
  DivergenceKind kind = DivergenceKind::kForwardKl;
  double jsd_beta = 0.5;   // weight b of jsd, in (0, 1)
  double temperature = 1;  // the logits of both are divided by it, after their caps; above 0
  int64_t top_k = 0;       // above 0: both renormalized over the teacher's top_k likeliest tokens
  HeadSpec student;        // its scale and cap are read
};

struct Divergence {
  at::Tensor value;  // [M], in nats: KL(teacher || student), KL(student || teacher), or with
                     // m = b teacher + (1 - b) student: b KL(teacher || m) + (1 - b) KL(student ||
                     // m), b = jsd_beta
  at::Tensor logp;   // [M]: the student's log p(target[i] | hidden[i]) at temperature 1, as
                     // token_logp gives it
};

// hidden [M, H_s], weight [V, H_s], target [M] in [0, V). Differentiable in hidden and weight,
// through both outputs; the teacher is a constant.
Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TeacherHead& teacher, const std::vector<int64_t>& target);
Divergence divergence(const DivergenceSpec& spec, const at::Tensor& hidden, const Weight& weight,
                      const TopTokens& teacher, const std::vector<int64_t>& target);

}  // namespace temper::ops
