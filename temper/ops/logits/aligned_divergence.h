// Divergences between a student and a teacher with another vocabulary, of spans of text that both
// divide into tokens of their own: GOLD (Patiño et al., "Unlocking on-policy distillation for any
// model family", 2025), and ULD (Boizard et al., arXiv 2402.12030) where no tokens are matched. In
// chunks of spans: no [N, vocabulary] tensor exists in either direction, and no span's number
// depends on another span.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "temper/ops/logits/divergence.h"

namespace temper::ops {

// Tokens of the same text in both vocabularies, and those that only one of them has.
struct VocabularyMatch {
  std::vector<int32_t> student, teacher;            // ids, pair by pair; each once
  std::vector<int32_t> student_rest, teacher_rest;  // ids, ascending
  // Fills in the rests of vocabularies of these sizes.
  void complete(int64_t student_size, int64_t teacher_size);
};

struct AlignedSpec {
  DivergenceKind kind = DivergenceKind::kForwardKl;  // of matched tokens
  double jsd_beta = 0.5;
  double temperature = 1;  // of both; above 0
  HeadSpec student;        // its scale and cap are read
  std::shared_ptr<const VocabularyMatch> match;
};

// The tokens of one model in each of G spans, as indices of its targets: the last one of a span
// [G], and those before it, span by span, with the span that each belongs to.
struct SpanTokens {
  std::vector<int64_t> last, before, span_of_before;
};

// A model's hidden states at its targets [M, H], which are ids [M].
struct SpanSide {
  SpanTokens tokens;
  const std::vector<int64_t>& target;
};

// Of each span, [G]. With P of the student and Q of the teacher: the probability of all tokens of
// the span but the last, times the distribution of the last (softmax at the temperature; a
// probability counts as at least 1e-8):
//
//   w D(Q, P) over matched tokens + (1 - w) Σ_r |P_(r) - Q_(r)| over the others, sorted,
//
// w being the share of the teacher's vocabulary that is matched, and D the sum over tokens of
// Q log(Q / P), P log(P / Q), or with m = b Q + (1 - b) P of b Q log(Q / m) + (1 - b) P log(P / m).
// Differentiable in hidden and weight; the teacher is a constant.
at::Tensor aligned_divergence(const AlignedSpec& spec, const at::Tensor& hidden,
                              const Weight& weight, const SpanSide& student,
                              const TeacherHead& teacher, const SpanSide& of_teacher);

}  // namespace temper::ops
