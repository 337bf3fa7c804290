// Kernels over the rows of a batch. Each is one piece of scalar arithmetic (rows-inl.h) that every
// SIMD target compiles again: the bits do not depend on the target, the batch or the number of
// threads. T is float, or double for gradient checks. Rows are contiguous unless a stride is given;
// sums over a row are sixteen partial sums joined by a tree.
#pragma once

#include <cstdint>

#include "temper/ops/specs.h"

namespace temper::kernels {

using ops::AdamWStep;
using Gate = ops::Activation;

// Logits are reduced in blocks of the vocabulary, joined in ascending order.
constexpr int64_t kVocabularyBlock = 512;
template <class T>
struct SoftmaxPart {
  T max, sum, weighted;
};

// Which features of a head rotary embedding pairs: of the first `rotated` (even) of them feature i
// with i + rotated / 2, or interleaved 2i with 2i + 1.
struct Rotation {
  int64_t rotated;
  bool interleaved;
};

// The kernels of this machine for T.
template <class T>
struct RowKernels {
  // y[r, i] = x[r, i] / sqrt(mean_i x^2 + eps) * w[i], w[i] = weight[i] or, add_unit_offset, 1 +
  // weight[i] (Gemma). Zhang and Sennrich, arXiv 1910.07467.
  void (*rms_norm)(int64_t rows, int64_t width, const T* x, const T* weight, double eps,
                   bool add_unit_offset, T* y);

  // dx += the gradient in x; dweight (may be null) += the gradient in weight, in ascending row
  // order.
  void (*rms_norm_backward)(int64_t rows, int64_t width, const T* x, const T* weight, double eps,
                            bool add_unit_offset, const T* dy, T* dx, T* dweight);

  // Rotates pairs of the first `rotated` features of each head in place: (a, b) -> (a c - b s, b c
  // + a s) with c, s = cos, sin[position[row]]. The other features stay. x[rows, heads, dim],
  // tables [positions, rotated / 2]; inverse rotates back. Su et al., arXiv 2104.09864.
  void (*rotate)(int64_t rows, int64_t heads, int64_t dim, const Rotation& rotation,
                 const int64_t* position, const T* cos, const T* sin, bool inverse, T* x);

  // y[r, i] = x[r, i] - mean_i x: its gradient is itself, of dy.
  void (*center)(int64_t rows, int64_t width, const T* x, T* y);

  // y = act(gate) * up.
  void (*gated)(int64_t count, Gate gate_kind, const T* gate, const T* up, T* y);
  void (*gated_backward)(int64_t count, Gate gate_kind, const T* gate, const T* up, const T* dy,
                         T* dgate, T* dup);

  // y = a + scale * b.
  void (*add_scaled)(int64_t count, const T* a, T scale, const T* b, T* y);

  // x = cap * tanh(x / cap), in place.
  void (*soft_cap)(int64_t count, T cap, T* x);

  // out[r, :] = table[id[r], :] * scale; the backward pass adds scale * dout rows to dtable in
  // ascending r.
  void (*gather_rows)(int64_t rows, int64_t width, const T* table, const int64_t* id, T scale,
                      T* out);
  void (*scatter_rows)(int64_t rows, int64_t width, const T* dout, const int64_t* id, T scale,
                       T* dtable);

  // A block's part in the softmax of a row of logits: its maximum, Σ exp(x - max), Σ exp(x - max)
  // (x - max). Blocks are kVocabularyBlock wide and joined in ascending order. parts[r * blocks +
  // b] for rows of `count` logits that begin at a block's first column; x is left as it is.
  void (*softmax_parts)(int64_t rows, int64_t count, const T* x, int64_t row_stride,
                        SoftmaxPart<T>* parts, int64_t parts_stride);
  // y = exp(x - shift), the terms that softmax_parts sums.
  void (*exp_shifted)(int64_t count, const T* x, T shift, T* y);
  // log Σ exp x and the entropy -Σ p log p of the whole row, from its parts.
  void (*join_parts)(int64_t rows, int64_t blocks, const SoftmaxPart<T>* parts, T* log_sum_exp,
                     T* entropy);

  // In place: x[r, j] becomes the gradient of g[r] * logp(target[r]) + h[r] * entropy[r] with
  // respect to x[r, j], where column j is vocabulary entry first + j.
  void (*softmax_gradient)(int64_t rows, int64_t count, int64_t first, const int64_t* target,
                           const T* log_sum_exp, const T* entropy, const T* g, const T* h, T* x,
                           int64_t row_stride);

  // y[i] = x[i] / (1 - p) where a coin keyed by (key, i) says keep, else 0. `row_key[r]` names row
  // r.
  void (*dropout_rows)(int64_t rows, int64_t width, uint64_t seed, uint64_t step, uint64_t module,
                       const uint64_t* row_key, double p, const T* x, T* y);
};
template <class T>
const RowKernels<T>& row_kernels();

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) over one tensor; see the config's
// meaning of each number.
void adamw(int64_t count, const AdamWStep& step, const float* grad, float* param, float* first,
           float* second);
// SGD with momentum as torch.optim.SGD: buffer = momentum * buffer + g (or g at the first step); p
// -= rate * buffer.
void sgd(int64_t count, double learning_rate, double momentum, double weight_decay,
         double grad_scale, bool first_step, const float* grad, float* param, float* buffer);
// Σ x^2 in double over fixed chunks: the same for any number of threads.
double sum_of_squares(int64_t count, const float* x);

}  // namespace temper::kernels
