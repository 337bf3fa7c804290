// Kernels that compare two models: divergences between distributions over the vocabulary, cosines
// and squared errors of rows. As rows.h: one piece of scalar arithmetic (divergence-inl.h) for
// every SIMD target; sums over a row are sixteen partial sums joined by a tree.
#pragma once

#include <cstdint>

#include "temper/ops/specs.h"

namespace temper::kernels {

using ops::DivergenceKind;

// The part of one block of the rows of logits s and t in their divergence.
template <class T>
struct DivergencePart {
  T max_s, sum_s;      // the largest logit, Σ exp(s - max)
  T max_t, sum_t;      // the same for t
  T cross_s, cross_t;  // Σ exp(s - max) (s - t), Σ exp(t - max) (t - s)
};

// With m = b q + (1 - b) p, where p is the softmax of s and q that of t.
template <class T>
struct MixturePart {
  T student, teacher;  // Σ p log(p / m), Σ q log(q / m)
};

// One block of rows of logits, and what is known of the whole rows.
template <class T>
struct LogitRows {
  int64_t rows, count;                 // size of the block; rows are contiguous
  const T *student, *teacher;          // [rows, count]
  const T *lse_student, *lse_teacher;  // [rows]
};

template <class T>
struct DivergenceKernels {
  // parts[r * stride] of each row's `count` logits, at most kVocabularyBlock.
  void (*parts)(const LogitRows<T>& x, DivergencePart<T>* parts, int64_t stride);
  void (*mixture_parts)(const LogitRows<T>& x, T b, MixturePart<T>* parts, int64_t stride);
  // out[r, j] = g[r] times the gradient of the divergence with respect to student[r, j]; `value[r]`
  // is the divergence of reverse KL, or KL(p || m) of jsd. `out` may be `student`.
  void (*gradient)(const LogitRows<T>& x, DivergenceKind kind, T b, const T* value, const T* g,
                   T* out);

  // Σ a b, Σ a a, Σ b b.
  void (*products)(int64_t count, const T* a, const T* b, T* out);
  // Σ (a - b)².
  T (*squared_distance)(int64_t count, const T* a, const T* b);
  // x becomes its softmax; the backward pass turns dp into the gradient with respect to x.
  void (*softmax)(int64_t count, T* x);
  void (*softmax_backward)(int64_t count, const T* p, T* dp);
};
template <class T>
const DivergenceKernels<T>& divergence_kernels();

}  // namespace temper::kernels
