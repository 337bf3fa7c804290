// Attention over a token forest: q/k norm, rotary embedding and attention as one function, which
// keeps only q, k and v as projected, its output and the log-sum-exp, and computes the rest again
// in the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "temper/ops/cpu/cache_dtype.h"
#include "temper/ops/forest.h"

namespace temper::ops {

using kernels::CacheDtype;

// cos and sin of every position and frequency, [positions, head_dim / 2].
struct RotaryTable {
  at::Tensor cos, sin;
};

struct AttentionSpec {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  double scale = 1;
  double soft_cap = 0;        // 0: none
  int64_t window = 0;         // 0: all earlier tokens
  at::Tensor q_norm, k_norm;  // RMSNorm weights over head_dim, or undefined
  double norm_eps = 0;
  bool norm_one_plus = false;
  // Keys and values are rounded to it before anything reads them (float64: never), so that they can
  // be cached in it; gradients pass as if they were not (straight-through, Bengio et al., arXiv
  // 1308.3432).
  CacheDtype cache_dtype = CacheDtype::kFloat32;
};

// q [N, num_heads * head_dim], k and v [N, num_kv_heads * head_dim], as projected -> [N, num_heads
// * head_dim]. Roots of the forest start at position 0. Differentiable in q, k, v and the norms'
// weights.
at::Tensor attention(const AttentionSpec& spec, const RotaryTable& rotary,
                     const std::shared_ptr<const Forest>& forest, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v);

// One layer's keys and values in pages, and where each row of the batch finds its own.
struct CachedRows {
  // [N], of the row's sequence in this layer, in order of position. A page has page_bytes() bytes
  // of AttentionSpec::cache_dtype, aligned to 4, to 64 for speed.
  std::vector<void* const*> pages;
  const std::vector<int64_t>* position = nullptr;  // [N]
};

// As attention, for sampling: writes each row's key and value into its page, then attends to all
// that lie in its pages. The bits are those of attention over the whole sequence. Not
// differentiable.
at::Tensor attention_cached(const AttentionSpec& spec, const RotaryTable& rotary,
                            const CachedRows& rows, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v);

// Positions in a page, and bytes that a page of one layer takes.
int64_t page_tokens();
int64_t page_bytes(const AttentionSpec& spec);

}  // namespace temper::ops
